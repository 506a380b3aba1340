/* tools/specs/spec.h - specs/lifecycle.md and specs/lifecycle.pml, printed from the tables of
 * fsm/lifecycle.c, so that neither can say anything else than the program does. */
#ifndef TOOLS_SPECS_SPEC_H
#define TOOLS_SPECS_SPEC_H

#include <stdio.h>

void spec_print_markdown(FILE *out);

/* Copies TEMPLATE, each line "@part@" replaced by that part of the tables. 0, or -1 with a line on stderr
 * for a part that there is not. */
int spec_print_promela(FILE *template, FILE *out);

#endif
