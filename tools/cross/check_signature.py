"""check_signature.py FILE - is the ad hoc signature of a Mach-O program whole? arm64 Macs run nothing else.

Looks at what the kernel looks at: the code directory's flags and the hash of every page. The formats are those of
mach-o/loader.h and of cs_blobs.h (apple-oss-distributions/xnu, osfmk/kern/cs_blobs.h).
"""
import hashlib
import struct
import sys

LC_CODE_SIGNATURE = 0x1D
MAGIC_64 = 0xFEEDFACF
MAGIC_EMBEDDED_SIGNATURE = 0xFADE0CC0
MAGIC_CODE_DIRECTORY = 0xFADE0C02
SLOT_CODE_DIRECTORY = 0
FLAG_ADHOC = 0x2
HASH_SHA256 = 2


def fail(text):
    sys.exit(f"check_signature: {text}")


def find_signature(image):
    magic, _, _, _, count, _, _, _ = struct.unpack_from("<8I", image)
    if magic != MAGIC_64:
        fail("not a 64-bit Mach-O file")
    at = 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", image, at)
        if command == LC_CODE_SIGNATURE:
            start, length = struct.unpack_from("<2I", image, at + 8)
            return image[start:start + length]
        at += size
    return fail("no signature")


def find_directory(signature):
    magic, _, count = struct.unpack_from(">3I", signature)
    if magic != MAGIC_EMBEDDED_SIGNATURE:
        fail("the signature is of an unknown kind")
    for i in range(count):
        slot, offset = struct.unpack_from(">2I", signature, 12 + 8 * i)
        if slot == SLOT_CODE_DIRECTORY:
            return signature[offset:]
    return fail("the signature has no code directory")


def check(path):
    with open(path, "rb") as file:
        image = file.read()
    directory = find_directory(find_signature(image))
    magic, _, _, flags, hashes, _, _, slots, limit = struct.unpack_from(">9I", directory)
    hash_size, hash_type, _, page_bits = struct.unpack_from(">4B", directory, 36)
    if magic != MAGIC_CODE_DIRECTORY or not flags & FLAG_ADHOC:
        fail("the code directory is not an ad hoc one")
    if hash_type != HASH_SHA256:
        fail(f"pages are hashed in an unknown way ({hash_type})")
    page = 1 << page_bits
    if slots != -(-limit // page):
        fail(f"{slots} hashes for {limit} bytes")
    for i in range(slots):
        is_hash = directory[hashes + i * hash_size:hashes + (i + 1) * hash_size]
        if hashlib.sha256(image[i * page:min((i + 1) * page, limit)]).digest() != is_hash:
            fail(f"page {i} was changed after it was signed")
    print(f"signature: ad hoc, {slots} pages of {page} bytes, all as signed")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    check(sys.argv[1])
