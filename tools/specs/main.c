/* fsm-spec md, or fsm-spec pml TEMPLATE: the specification of the lifecycle, on stdout. */
#include <stdio.h>
#include <string.h>

#include "tools/specs/spec.h"

static int print_promela(const char *path)
{
    FILE *template = fopen(path, "r");

    if (template == NULL) {
        perror(path);
        return -1;
    }
    int r = spec_print_promela(template, stdout);

    if (ferror(template)) {
        perror(path);
        r = -1;
    }
    fclose(template);
    return r;
}

static int print_spec(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "md") == 0) {
        spec_print_markdown(stdout);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "pml") == 0)
        return print_promela(argv[2]);
    fputs("usage: fsm-spec md | fsm-spec pml TEMPLATE\n", stderr);
    return -1;
}

int main(int argc, char **argv)
{
    if (print_spec(argc, argv) < 0)
        return 1;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("fsm-spec");
        return 1;
    }
    return 0;
}
