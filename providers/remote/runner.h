/* providers/remote/runner.h - the guest's side of exec.h: this program, started by sshd through a login
 * shell.
 *
 * `agent-desktop --run-for-host` reads one header from stdin, not a byte more: a nonce, the files that must
 * be what the host has (name and SHA-1), the time limit, the words of the command. Then the command has stdin
 * and stdout as they are, nothing is copied on the way; its stderr passes through the runner. What the runner
 * has to tell goes into the streams as marks that only the nonce's owner can know. Specified in protocol.h.
 *
 * The command leads a session of its own. When the host hangs up, all of it is killed; when the time is over,
 * it gets SIGTERM first. A command that ends by itself may leave processes behind, which live on. */
#ifndef PROVIDERS_REMOTE_RUNNER_H
#define PROVIDERS_REMOTE_RUNNER_H

#define RUNNER_MODE "--run-for-host"

/* main() of that mode; and of `--run-for-host join RENDEZVOUS`, the second one of the same connection. */
int runner_main(int argc, char **argv);

#endif
