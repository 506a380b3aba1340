"""codesign, and the signature it leaves: the end of the file, as signed.c reads it."""

import os
import plistlib
import stat
import sys
import zlib

_MARK = b"-SIMULATED-SIGNATURE\n"
_TRAILER = 16 + len(_MARK)
_LINKER = b"adhoc,linker-signed\n"
_CODESIGN = b"adhoc\n"


def split(data):
    """(bytes, signature's text or None, is it that of the bytes) of a whole file."""
    if not data.endswith(_MARK):
        return data, None, False
    crc, length = int(data[-_TRAILER:-_TRAILER + 8], 16), int(data[-_TRAILER + 8:-_TRAILER + 16], 16)
    body, text = data[:-_TRAILER - length], data[-_TRAILER - length:-_TRAILER]
    return body, text, zlib.crc32(body) == crc


def signed(body, entitlements=b"", by_linker=False):
    text = (_LINKER if by_linker else _CODESIGN) + entitlements
    return body + text + f"{zlib.crc32(body):08x}{len(text):08x}".encode() + _MARK


def entitlements_of(text):
    return text.split(b"\n", 1)[1]


class _Refused(Exception):
    pass


def codesign(argv):
    """codesign of the words in ARGV, in the current directory; the exit status."""
    options, names = _options(argv)
    status = 0
    for name in names:
        try:
            _one(options, name)
        except _Refused as refusal:
            print(f"{name}: {refusal}", file=sys.stderr)
            status = 1
        except OSError as error:
            print(f"{name}: {error.strerror}", file=sys.stderr)
            status = 1
    if not names:
        print("Usage: codesign -s identity [--force] [--entitlements FILE] path ...", file=sys.stderr)
        return 2
    return status


def _options(argv):
    with_value = {"--sign": "sign", "-s": "sign", "--entitlements": "entitlements", "--identifier": "identifier",
                  "-i": "identifier", "--options": "options", "-o": "options"}
    flags = {"--force": "force", "-f": "force", "--verify": "verify", "-v": "verbose", "--verbose": "verbose",
             "--display": "display", "-d": "display", "--xml": "xml", "--strict": "strict", "--deep": "deep"}
    options, names, words = {}, [], iter(argv)
    for word in words:
        if word in with_value:
            options[with_value[word]] = next(words, "")
        elif word in flags:
            options[flags[word]] = True
        elif word.startswith("--entitlements="):
            options["entitlements"] = word.split("=", 1)[1]
        else:
            names.append(word)
    return options, names


def _one(options, name):
    if name.isdigit():
        raise _Refused("No such process")
    with open(name, "rb") as file:
        data = file.read()
    body, text, whole = split(data)
    if "sign" in options:
        _sign(options, name, body, text)
        return
    if text is None:
        raise _Refused("code object is not signed at all")
    if "verify" in options or not options.get("display"):
        if not whole:
            raise _Refused("invalid signature (code or signature have been modified)")
    if options.get("display"):
        print(f"Executable={os.path.realpath(name)}", file=sys.stderr)
        if "entitlements" in options:
            sys.stdout.write(entitlements_of(text).decode())


def _sign(options, name, body, text):
    if options["sign"] != "-":
        raise _Refused(f"{options['sign']}: no identity found")
    if text is not None and not options.get("force"):
        raise _Refused("is already signed")
    entitlements = b""
    if options.get("entitlements"):
        with open(options["entitlements"], "rb") as file:
            entitlements = file.read()
        try:
            plistlib.loads(entitlements)
        except (plistlib.InvalidFileException, ValueError) as error:
            raise _Refused("Failed to parse entitlements: AMFIUnserializeXML: syntax error") from error
        if not entitlements.endswith(b"\n"):
            entitlements += b"\n"
    temporary = name + ".cstemp"  # a new file: what runs keeps the old one
    with open(temporary, "wb") as file:
        file.write(signed(body, entitlements))
        os.fchmod(file.fileno(), stat.S_IMODE(os.stat(name).st_mode))
    os.rename(temporary, name)
