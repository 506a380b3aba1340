// Sends the vendor's clients to the simulated service: neither has a setting for it. Loaded with `node --import`.
// Nothing else is let out of the machine: no telemetry, no look for a newer version.

const real = globalThis.fetch;
const hosted = "https://vercel.com/api";

globalThis.fetch = async (input, options) => {
  const address = typeof input === "string" ? input : input.url ?? String(input);
  if (!address.startsWith(hosted + "/")) throw new Error(`not in this test: ${address}`);
  return real(process.env.CLOUD_URL + address.slice(hosted.length), options);
};
