/* tools/bench/fetch.c - the download of an image, alone (P-12).
 *
 *   fetch URL FILE SHA1
 *
 * FILE must not exist. Exits with 0 when it is on the disk and has that hash. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "providers/remote/http.h"

#define STALL_MS   60000
#define GIVE_UP_MS (15 * 60 * 1000)

int main(int argc, char **argv)
{
    struct http_download download = { .stall_ms = STALL_MS, .give_up_ms = GIVE_UP_MS };
    char sum[HTTP_SHA1_SIZE];
    struct error e = { 0 };

    if (argc != 4) {
        fprintf(stderr, "usage: fetch URL FILE SHA1\n");
        return 2;
    }
    download.url = argv[1];
    download.sha1 = argv[3];
    download.file = open(argv[2], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (download.file < 0) {
        perror(argv[2]);
        return 1;
    }
    if (http_download(&download, sum, &e) < 0) {
        fprintf(stderr, "fetch: %s\n", e.message);
        return 1;
    }
    close(download.file);
    return 0;
}
