#include "tools/desktop/entry.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text.h"

#define GROUP "[Desktop Entry]"

/* The value of KEY in the group as it is written, up to the end of its line; free() it. NULL when there is
 * none. Keys with a locale ("Name[de]") are other keys. */
static char *find_value(const char *bytes, const char *key)
{
    const size_t key_length = strlen(key);
    bool inside = false;

    for (const char *line = bytes; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        const char *value = line + key_length;

        if (line[0] == '[')
            inside = strncmp(line, GROUP, strlen(GROUP)) == 0;
        else if (inside && strncmp(line, key, key_length) == 0) {
            value += strspn(value, " ");
            if (*value == '=') {
                value++;
                value += strspn(value, " ");
                return strndup(value, (size_t)(line + length - value));
            }
        }
        line += length + (line[length] == '\n');
    }
    return NULL;
}

/* The file format's escapes undone; free() it. */
static char *unescape(const char *value)
{
    static const char codes[] = "sntr\\", meant[] = " \n\t\r\\";
    char *out = mem_copy_text(value), *to = out;

    for (const char *from = value; *from != '\0'; from++) {
        const char *code = *from == '\\' && from[1] != '\0' ? strchr(codes, from[1]) : NULL;

        if (code == NULL) {
            *to++ = *from;
            continue;
        }
        *to++ = meant[code - codes];
        from++;
    }
    *to = '\0';
    return out;
}

/* One argument from *AT on, which moves behind it. false when a quote is not closed. *CODES: it held field
 * codes; when it is empty because of that it is no argument. */
static bool take_argument(const char **at, struct text *out, bool *codes)
{
    const char *p = *at;
    bool quoted = false;

    for (; *p != '\0' && (quoted || (*p != ' ' && *p != '\t')); p++) {
        if (*p == '"') {
            quoted = !quoted;
        } else if (*p == '%' && p[1] != '\0') {
            p++;
            if (*p == '%')
                text_add(out, "%", 1);
            else
                *codes = true;
        } else {
            if (quoted && *p == '\\' && p[1] != '\0')
                p++;
            text_add(out, p, 1);
        }
    }
    *at = p;
    return !quoted;
}

static bool split_exec(const char *exec, struct entry *out)
{
    for (const char *p = exec + strspn(exec, " \t"); *p != '\0'; p += strspn(p, " \t")) {
        struct text argument = { 0 };
        bool codes = false;

        if (!take_argument(&p, &argument, &codes)) {
            text_done(&argument);
            return false;
        }
        if (!codes || argument.size > 0) {
            out->argv = mem_grow(out->argv, out->argc + 2, sizeof out->argv[0]);
            out->argv[out->argc++] = mem_copy_text(text_get(&argument));
            out->argv[out->argc] = NULL;
        }
        text_done(&argument);
    }
    return out->argc > 0;
}

static bool is_true(const char *bytes, const char *key)
{
    AUTO_FREE char *value = find_value(bytes, key);

    return value != NULL && strncmp(value, "true", 4) == 0;
}

bool entry_parse(const char *bytes, struct entry *out)
{
    AUTO_FREE char *type = find_value(bytes, "Type"), *name = find_value(bytes, "Name"),
                   *exec = find_value(bytes, "Exec");
    struct entry entry = { 0 };

    if (type == NULL || strncmp(type, "Application", 11) != 0 || name == NULL || exec == NULL ||
        is_true(bytes, "Hidden"))
        return false;

    AUTO_FREE char *command = unescape(exec);

    if (!split_exec(command, &entry)) {
        entry_done(&entry);
        return false;
    }
    entry.name = unescape(name);
    *out = entry;
    return true;
}

void entry_done(struct entry *entry)
{
    for (size_t i = 0; i < entry->argc; i++)
        free(entry->argv[i]);
    free(entry->argv);
    free(entry->name);
    *entry = (struct entry){ 0 };
}
