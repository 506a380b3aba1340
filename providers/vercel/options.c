#include "providers/vercel/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/text.h"
#include "providers/vercel/api.h"
#include "providers/vercel/vercel.h"

#define DEFAULT_IMAGE   "ad-desktop"
#define DEFAULT_TIMEOUT "30m" /* the service's own is 5 minutes: too short for a desktop */

#define TIMEOUT_MAX_S (24 * 60 * 60) /* of the largest plans */
#define VCPUS_MAX     1024           /* what a plan allows is the service's to say */
#define OUR_TAGS      2
#define WORD_SIZE     64 /* of regions, runtimes, keys of tags */
#define TAG_VALUE_MAX 256
#define ENV_KEY_MAX   256

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS  "0123456789"

#define MADE_BY "made-by" /* HOSTED_TAG_OURS */

/* --- single ones ------------------------------------------------------------------------------------- */

/* 1 to MAX of ALLOWED, the first of them a letter or a digit: no option, no path. */
static bool is_word(const char *value, const char *allowed, size_t max)
{
    size_t size = strspn(value, allowed);

    return size >= 1 && size <= max && value[size] == '\0' && strchr(LETTERS DIGITS, value[0]) != NULL;
}

static int take(const char *value, char out[FACT_VALUE_SIZE])
{
    snprintf(out, FACT_VALUE_SIZE, "%s", value);
    return 0;
}

static int check_image(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (is_word(value, LETTERS DIGITS "._-/:@", FACT_VALUE_SIZE - 1))
        return take(value, out);
    return error_set(e, ERROR_INVALID_ARGS, 0,
                     "image is one of the service's registry, as 'ad-desktop', 'ad-desktop:TAG', "
                     "'ad-desktop@sha256:DIGEST' or 'TEAM/PROJECT/ad-desktop', not '%s'",
                     value);
}

static int check_runtime(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (is_word(value, LETTERS DIGITS "._-", WORD_SIZE))
        return take(value, out);
    return error_set(e, ERROR_INVALID_ARGS, 0, "runtime is a word of the service, such as 'node24', not '%s'",
                     value);
}

static int check_region(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (is_word(value, LETTERS DIGITS "-", WORD_SIZE))
        return take(value, out);
    return error_set(e, ERROR_INVALID_ARGS, 0, "region is a word of the service, such as 'iad1', not '%s'",
                     value);
}

static int check_id(const char *value, const char *what, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (is_word(value, LETTERS DIGITS "_-", VERCEL_ID_SIZE - 1))
        return take(value, out);
    return error_set(e, ERROR_INVALID_ARGS, 0,
                     "%s is an id of at most %d of a-z, A-Z, 0-9, '_' and '-', not '%s'", what,
                     VERCEL_ID_SIZE - 1, value);
}

static int check_snapshot(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    return check_id(value, "snapshot", out, e);
}

static int check_team(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    return check_id(value, "team", out, e);
}

static int check_project(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    return check_id(value, "project", out, e);
}

static int check_vcpus(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    struct error reason = { 0 };
    int64_t count;

    if (text_parse_int(value, "vcpus", 1, VCPUS_MAX, &count, &reason) < 0 || (count != 1 && count % 2 != 0))
        return error_set(e, ERROR_INVALID_ARGS, 0, "vcpus is 1 or an even number up to %d, not '%s'",
                         VCPUS_MAX, value);
    snprintf(out, FACT_VALUE_SIZE, "%d", (int)count);
    return 0;
}

static const struct {
    char letter;
    int seconds;
} units[] = { { 'h', 3600 }, { 'm', 60 }, { 's', 1 } }; /* the largest first */

/* Seconds, 0 when it is no duration of 1 s to 24 h. */
static int parse_duration(const char *value)
{
    char number[16];
    size_t size = strspn(value, DIGITS);
    struct error reason = { 0 };
    int64_t count;

    if (size == 0 || size >= sizeof(number) || value[size] == '\0' || value[size + 1] != '\0')
        return 0;
    snprintf(number, sizeof(number), "%.*s", (int)size, value);
    if (text_parse_int(number, "timeout", 1, TIMEOUT_MAX_S, &count, &reason) < 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (units[i].letter == value[size])
            return count * units[i].seconds <= TIMEOUT_MAX_S ? (int)count * units[i].seconds : 0;
    return 0;
}

/* In the largest unit that divides it: the same time is always recorded as the same text. */
static int check_timeout(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    int seconds = parse_duration(value);
    size_t unit = 0;

    if (seconds == 0)
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "timeout is a duration from 1s to 24h, such as '90s', '45m' or '2h', not '%s'",
                         value);
    while (seconds % units[unit].seconds != 0)
        unit++;
    snprintf(out, FACT_VALUE_SIZE, "%d%c", seconds / units[unit].seconds, units[unit].letter);
    return 0;
}

static int check_persistent(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        return take(value, out);
    return error_set(e, ERROR_INVALID_ARGS, 0, "persistent is 'true' or 'false', not '%s'", value);
}

/* A domain name, perhaps of all below one: "*.example.com". */
static bool is_host(const char *host, size_t size)
{
    bool wild = size > 2 && host[0] == '*' && host[1] == '.';
    char previous = '.';

    for (size_t i = wild ? 2 : 0; i < size; i++) {
        bool sign = host[i] == '-' || host[i] == '.';

        if (host[i] == '\0' || strchr(LETTERS DIGITS "-_.", host[i]) == NULL || (sign && previous == '.') ||
            (host[i] == '.' && previous == '-'))
            return false;
        previous = host[i];
    }
    return size > 0 && previous != '.' && previous != '-';
}

static bool is_word_for_all(const char *value, size_t size)
{
    return (size == 3 && strncmp(value, "all", size) == 0) ||
           (size == 4 && strncmp(value, "none", size) == 0);
}

/* The words for all and none are no hosts among others. */
static bool are_hosts(const char *value)
{
    size_t size;

    for (;; value += size + 1) {
        size = strcspn(value, ",");
        if (!is_host(value, size) || is_word_for_all(value, size))
            return false;
        if (value[size] == '\0')
            return true;
    }
}

static int check_network(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    if (is_word_for_all(value, strlen(value)) || (strlen(value) < FACT_VALUE_SIZE && are_hosts(value)))
        return take(value, out);
    return error_set(e, ERROR_INVALID_ARGS, 0,
                     "network is 'all', 'none', or names of hosts that may be reached, such as "
                     "'example.com,*.example.org', at most %d bytes, not '%s'",
                     FACT_VALUE_SIZE - 1, value);
}

/* Neither of these tells the value: it may be a secret. */

static int check_env(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    (void)out;
    return text_is_utf8(value, strlen(value))
               ? 0
               : error_set(e, ERROR_INVALID_ARGS, 0, "the value of an environment variable must be UTF-8");
}

static int check_tag(const char *value, char out[FACT_VALUE_SIZE], struct error *e)
{
    size_t size = strlen(value);

    (void)out;
    return size <= TAG_VALUE_MAX && text_is_utf8(value, size)
               ? 0
               : error_set(e, ERROR_INVALID_ARGS, 0, "the value of a tag must be UTF-8, at most %d bytes",
                           TAG_VALUE_MAX);
}

const struct provider_option vercel_create_options[] = {
    { .key = "image",
      .value = "IMAGE",
      .help = "start from this image of the service's registry (default " DEFAULT_IMAGE ")",
      .check = check_image },
    { .key = "runtime",
      .value = "RUNTIME",
      .help = "start from a runtime of the service instead, without a desktop",
      .check = check_runtime },
    { .key = "snapshot", .value = "ID", .help = "start from this snapshot instead", .check = check_snapshot },
    { .key = "timeout",
      .value = "DURATION",
      .help = "how long it runs before the service stops it (default " DEFAULT_TIMEOUT ")",
      .check = check_timeout },
    { .key = "vcpus",
      .value = "N",
      .help = "1 or an even number of processors, with 2 GB each (default: the service's)",
      .check = check_vcpus },
    { .key = "region",
      .value = "REGION",
      .help = "where it runs (default: the service's)",
      .check = check_region },
    { .key = "persistent",
      .value = "true|false",
      .help = "keep its disk when it is stopped, which costs storage (default true)",
      .check = check_persistent },
    { .key = "network",
      .value = "all|none|HOST[,HOST...]",
      .help = "what it may reach (default all)",
      .check = check_network },
    { .key = "team", .value = "ID", .help = "make it in this team, with project", .check = check_team },
    { .key = "project",
      .value = "ID",
      .help = "make it in this project (default: the one that the credentials name)",
      .check = check_project },
    { .key = "env.",
      .value = "VALUE",
      .help = "environment variable of all that runs inside; not recorded here",
      .check = check_env,
      .unrecorded = true },
    { .key = "tag.",
      .value = "VALUE",
      .help = "tag on the service, at most 3; not recorded here",
      .check = check_tag,
      .unrecorded = true },
    { 0 },
};

const struct provider_option vercel_start_options[] = { { 0 } };

/* --- as a whole -------------------------------------------------------------------------------------- */

/* Where the disk comes from. */
static const char *const bases[] = { "set.image", "set.runtime", "set.snapshot" };

static const char *bare_name(const char *fact)
{
    return fact + strlen("set.");
}

static int check_bases(const struct facts *facts, struct error *e)
{
    const char *first = NULL;

    for (size_t i = 0; i < ARRAY_LEN(bases); i++) {
        if (facts_get(facts, bases[i]) == NULL)
            continue;
        if (first != NULL)
            return error_set(e, ERROR_INVALID_ARGS, 0,
                             "--set %s and --set %s do not go together: a sandbox starts from one of them",
                             first, bare_name(bases[i]));
        first = bare_name(bases[i]);
    }
    return 0;
}

/* A copy begins with its source's disk, in its source's project. */
static int check_copy(const struct facts *facts, struct error *e)
{
    static const char *const others[] = { "set.image", "set.runtime", "set.snapshot", "set.team",
                                          "set.project" };

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (facts_get(facts, others[i]) != NULL)
            return error_set(
                e, ERROR_INVALID_ARGS, 0,
                "--set from=SANDBOX copies the disk within the source's project, and does not go with "
                "--set %s",
                bare_name(others[i]));
    return 0;
}

/* What is behind PREFIX in "PREFIXKEY=VALUE"; NULL when it begins otherwise. */
static const char *skip_prefix(const char *setting, const char *prefix)
{
    size_t size = strlen(prefix);

    return strncmp(setting, prefix, size) == 0 ? setting + size : NULL;
}

#define SHOWN(size) ((int)((size) < WORD_SIZE ? (size) : WORD_SIZE)) /* of a key in a message */

static size_t key_size(const char *setting)
{
    return strcspn(setting, "=");
}

static int check_env_key(const char *key, size_t size, struct error *e)
{
    bool fine = size >= 1 && size <= ENV_KEY_MAX && strspn(key, LETTERS DIGITS "_") == size &&
                strchr(DIGITS, key[0]) == NULL;

    return fine ? 0
                : error_set(e, ERROR_INVALID_ARGS, 0,
                            "--set env.%.*s: the name of an environment variable has letters, digits and "
                            "'_', and does "
                            "not begin with a digit",
                            SHOWN(size), key);
}

static bool is_key(const char *key, size_t size, const char *other)
{
    return strlen(other) == size && strncmp(key, other, size) == 0;
}

static int check_tag_key(const char *key, size_t size, struct error *e)
{
    if (is_key(key, size, HOSTED_TAG) || is_key(key, size, MADE_BY))
        return error_set(e, ERROR_INVALID_ARGS, 0, "--set tag.%.*s: this tag is agent-desktop's own mark",
                         SHOWN(size), key);
    if (size < 1 || size > WORD_SIZE || strspn(key, LETTERS DIGITS "._-") != size)
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "--set tag.%.*s: the name of a tag is 1 to %d of a-z, A-Z, 0-9, '.', '_' and '-'",
                         SHOWN(size), key, WORD_SIZE);
    return 0;
}

static int check_unrecorded(char *const *unrecorded, struct error *e)
{
    int tags = 0;

    for (; unrecorded != NULL && *unrecorded != NULL; unrecorded++) {
        const char *variable = skip_prefix(*unrecorded, "env."), *tag = skip_prefix(*unrecorded, "tag.");

        if (variable != NULL && check_env_key(variable, key_size(variable), e) < 0)
            return -1;
        if (tag != NULL && check_tag_key(tag, key_size(tag), e) < 0)
            return -1;
        tags += tag != NULL;
    }
    return tags <= VERCEL_TAGS_MAX - OUR_TAGS
               ? 0
               : error_set(e, ERROR_INVALID_ARGS, 0,
                           "--set tag.NAME: at most %d; the service takes %d, and %d are agent-desktop's own",
                           VERCEL_TAGS_MAX - OUR_TAGS, VERCEL_TAGS_MAX, OUR_TAGS);
}

static int add_default(struct facts *facts, const char *key, const char *value, struct error *e)
{
    return facts_get(facts, key) != NULL || facts_set(facts, key, value)
               ? 0
               : error_set(e, ERROR_INVALID_ARGS, 0, "too many options");
}

static bool has_base(const struct facts *facts)
{
    for (size_t i = 0; i < ARRAY_LEN(bases); i++)
        if (facts_get(facts, bases[i]) != NULL)
            return true;
    return false;
}

/* A token that is for another project would be refused only when all is recorded. Where there is none, the
 * look at the host tells. */
static int check_claims(const struct vercel_box *box, const struct facts *facts, struct error *e)
{
    struct credentials aimed = box->credentials;

    if (aimed.token == NULL)
        return 0;
    return credentials_aim(&aimed, facts_get(facts, "set.team"), facts_get(facts, "set.project"), "--set", e);
}

int vercel_check_create(void *self, struct facts *facts, struct error *e)
{
    const struct vercel_box *box = self;

    if (box != NULL && check_unrecorded(box->place->unrecorded, e) < 0)
        return -1;
    if (facts_get(facts, "set.from") != NULL)
        return check_copy(facts, e); /* and the rest is as the source has it */
    if (check_bases(facts, e) < 0)
        return -1;
    if (facts_get(facts, "set.team") != NULL && facts_get(facts, "set.project") == NULL)
        return error_set(e, ERROR_INVALID_ARGS, 0,
                         "--set team=ID needs --set project=ID, a project of that team");
    if (box != NULL && check_claims(box, facts, e) < 0)
        return -1;
    if (!has_base(facts) && add_default(facts, "set.image", DEFAULT_IMAGE, e) < 0)
        return -1;
    return add_default(facts, "set.timeout", DEFAULT_TIMEOUT, e) < 0 ||
                   add_default(facts, "set.persistent", "true", e) < 0
               ? -1
               : 0;
}

bool vercel_wants_desktop(const struct facts *facts)
{
    return facts_get(facts, "set.runtime") == NULL;
}

/* --- the body ---------------------------------------------------------------------------------------- */

typedef void put_fn(struct json *body, const char *value);

static void put_image(struct json *body, const char *value)
{
    json_put_string(body, "image", value);
}

static void put_runtime(struct json *body, const char *value)
{
    json_put_string(body, "runtime", value);
}

static void put_snapshot(struct json *body, const char *value)
{
    struct json *source = json_new_object();

    json_put_string(source, "type", "snapshot");
    json_put_string(source, "snapshotId", value);
    json_put(body, "source", source);
}

static void put_timeout(struct json *body, const char *value)
{
    json_put_int(body, "timeout", (int64_t)parse_duration(value) * 1000);
}

static void put_vcpus(struct json *body, const char *value)
{
    struct json *resources = json_new_object();

    json_put_int(resources, "vcpus", strtol(value, NULL, 10));
    json_put(body, "resources", resources);
}

static void put_region(struct json *body, const char *value)
{
    json_put_string(body, "region", value);
}

static void put_persistent(struct json *body, const char *value)
{
    json_put_bool(body, "persistent", strcmp(value, "true") == 0);
}

static struct json *new_hosts(const char *value)
{
    struct json *hosts = json_new_array();

    for (size_t size; *value != '\0'; value += value[size] == '\0' ? size : size + 1) {
        char host[FACT_VALUE_SIZE];

        size = strcspn(value, ",");
        snprintf(host, sizeof(host), "%.*s", (int)size, value);
        json_add_string(hosts, host);
    }
    return hosts;
}

/* The words of @vercel/sandbox 3.5.0. "all" is said too: a copy may be of one that reaches less. */
static void put_network(struct json *body, const char *value)
{
    struct json *policy = json_new_object();

    if (is_word_for_all(value, strlen(value)))
        json_put_string(policy, "mode", strcmp(value, "all") == 0 ? "allow-all" : "deny-all");
    else
        json_put(policy, "allow", new_hosts(value));
    json_put(body, "networkPolicy", policy);
}

static const struct {
    const char *fact;
    put_fn *put;
    bool of_disk; /* a copy has its source's */
} members[] = {
    { "set.image", put_image, true },
    { "set.runtime", put_runtime, true },
    { "set.snapshot", put_snapshot, true },
    { "set.timeout", put_timeout, false },
    { "set.persistent", put_persistent, false },
    { "set.vcpus", put_vcpus, false },
    { "set.region", put_region, false },
    { "set.network", put_network, false },
};

/* Puts the settings that begin with PREFIX; how many there are. */
static size_t put_settings(struct json *object, char *const *unrecorded, const char *prefix)
{
    size_t count = 0;

    for (; unrecorded != NULL && *unrecorded != NULL; unrecorded++) {
        const char *setting = skip_prefix(*unrecorded, prefix);
        AUTO_FREE char *key = NULL;

        if (setting == NULL || setting[key_size(setting)] == '\0')
            continue;
        key = mem_print("%.*s", (int)key_size(setting), setting);
        json_put_string(object, key, setting + key_size(setting) + 1);
        count++;
    }
    return count;
}

static void put_tags(struct json *body, char *const *unrecorded, const char *id,
                     const struct json *source_tags)
{
    struct json *tags = source_tags != NULL ? json_clone(source_tags) : json_new_object();

    put_settings(tags, unrecorded, "tag.");
    json_put_string(tags, HOSTED_TAG, id);
    json_put_string(tags, MADE_BY, HOSTED_TAG);
    json_put(body, "tags", tags);
}

static void put_env(struct json *body, char *const *unrecorded)
{
    AUTO_JSON struct json *env = json_new_object();

    if (put_settings(env, unrecorded, "env.") > 0)
        json_put(body, "env", steal(&env));
}

struct json *vercel_print_body(const struct facts *facts, char *const *unrecorded, bool clone,
                               const char *name, const char *id, const struct json *source_tags)
{
    struct json *body = json_new_object();

    json_put_string(body, "name", name);
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const char *value = facts_get(facts, members[i].fact);

        if (value != NULL && value[0] != '\0' && !(clone && members[i].of_disk))
            members[i].put(body, value);
    }
    if (!clone)
        json_put(body, "ports", json_new_array()); /* the vendor's client always sends it */
    put_env(body, unrecorded);
    put_tags(body, unrecorded, id, source_tags);
    return body;
}
