#include "providers/remote/http_exchange.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CURL_DISABLE_TYPECHECK /* its macros want plain names, and here they are called through a table */
#include <curl/curl.h>

#include "core/clock.h"
#include "core/library.h"
#include "core/mem.h"

#define CONNECT_MS 15000
#define POLL_MS    1000 /* at most so long without looking at the clock */
#define RECEIVE_SIZE                                                                                         \
    262144 /* bytes a read(2); with curl's 16 KiB a fast download spends its time in the kernel */

struct libcurl {
    __typeof__(curl_global_init) *curl_global_init;
    __typeof__(curl_easy_init) *curl_easy_init;
    __typeof__(curl_easy_cleanup) *curl_easy_cleanup;
    __typeof__(curl_easy_reset) *curl_easy_reset;
    __typeof__(curl_easy_setopt) *curl_easy_setopt;
    __typeof__(curl_easy_getinfo) *curl_easy_getinfo;
    __typeof__(curl_easy_header) *curl_easy_header;
    __typeof__(curl_easy_strerror) *curl_easy_strerror;
    __typeof__(curl_multi_init) *curl_multi_init;
    __typeof__(curl_multi_cleanup) *curl_multi_cleanup;
    __typeof__(curl_multi_add_handle) *curl_multi_add_handle;
    __typeof__(curl_multi_remove_handle) *curl_multi_remove_handle;
    __typeof__(curl_multi_perform) *curl_multi_perform;
    __typeof__(curl_multi_poll) *curl_multi_poll;
    __typeof__(curl_multi_info_read) *curl_multi_info_read;
    __typeof__(curl_multi_strerror) *curl_multi_strerror;
    __typeof__(curl_slist_append) *curl_slist_append;
    __typeof__(curl_slist_free_all) *curl_slist_free_all;
    __typeof__(curl_url) *curl_url;
    __typeof__(curl_url_cleanup) *curl_url_cleanup;
    __typeof__(curl_url_set) *curl_url_set;
    __typeof__(curl_url_get) *curl_url_get;
    __typeof__(curl_free) *curl_free;
    __typeof__(curl_getdate) *curl_getdate;
};

/* curl_easy_header is the newest of them: 7.83 (Debian 12 has 7.88, macOS 13.0 has 7.84). */
static const struct library_symbol symbols[] = {
    LIBRARY_SYMBOL(libcurl, curl_global_init),
    LIBRARY_SYMBOL(libcurl, curl_easy_init),
    LIBRARY_SYMBOL(libcurl, curl_easy_cleanup),
    LIBRARY_SYMBOL(libcurl, curl_easy_reset),
    LIBRARY_SYMBOL(libcurl, curl_easy_setopt),
    LIBRARY_SYMBOL(libcurl, curl_easy_getinfo),
    LIBRARY_SYMBOL(libcurl, curl_easy_header),
    LIBRARY_SYMBOL(libcurl, curl_easy_strerror),
    LIBRARY_SYMBOL(libcurl, curl_multi_init),
    LIBRARY_SYMBOL(libcurl, curl_multi_cleanup),
    LIBRARY_SYMBOL(libcurl, curl_multi_add_handle),
    LIBRARY_SYMBOL(libcurl, curl_multi_remove_handle),
    LIBRARY_SYMBOL(libcurl, curl_multi_perform),
    LIBRARY_SYMBOL(libcurl, curl_multi_poll),
    LIBRARY_SYMBOL(libcurl, curl_multi_info_read),
    LIBRARY_SYMBOL(libcurl, curl_multi_strerror),
    LIBRARY_SYMBOL(libcurl, curl_slist_append),
    LIBRARY_SYMBOL(libcurl, curl_slist_free_all),
    LIBRARY_SYMBOL(libcurl, curl_url),
    LIBRARY_SYMBOL(libcurl, curl_url_cleanup),
    LIBRARY_SYMBOL(libcurl, curl_url_set),
    LIBRARY_SYMBOL(libcurl, curl_url_get),
    LIBRARY_SYMBOL(libcurl, curl_free),
    LIBRARY_SYMBOL(libcurl, curl_getdate),
};

struct http {
    struct libcurl lib;
    CURL *easy;
    CURLM *multi; /* it owns the connections, so that they outlive a request */
    CURLU *url;   /* of the request at hand; read by us and by curl, which therefore cannot disagree */
    struct curl_slist *headers;
    char host[256];
    bool encrypted; /* h->url is https */
    char curl_says[CURL_ERROR_SIZE];
};

/* One exchange at work. */
struct transfer {
    struct http *h;
    const struct http_request *r;
    struct http_answer *a;
    struct http_exchange *x;
    struct error *e;
    int64_t deadline_at;
    int64_t sent;        /* bytes of the body that on_read has given */
    bool head_read;      /* A is filled from the head */
    bool enough, failed; /* a callback said so; failed: with *e */
    int64_t stall_mark;  /* bytes moved when the pace was last good enough */
    int64_t stalled_ms;  /* waited for the peer since then: what we do ourselves meanwhile does not count */
};

/* ---- the client ---- */

int http_open(struct http **out, struct error *e)
{
    struct http *h = mem_alloc(sizeof(*h));

    if (library_open("libcurl.so.4", "libcurl4", symbols, ARRAY_LEN(symbols), &h->lib, e) < 0) {
        free(h);
        return -1;
    }
    if (h->lib.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
        (h->easy = h->lib.curl_easy_init()) == NULL || (h->multi = h->lib.curl_multi_init()) == NULL) {
        http_close(h);
        return error_set(e, ERROR_INTERNAL, 0, "libcurl cannot be started");
    }
    *out = h;
    return 0;
}

/* One of them may be a secret. */
static void forget_headers(struct http *h)
{
    for (struct curl_slist *line = h->headers; line != NULL; line = line->next)
        util_wipe(line->data, strlen(line->data));
    h->lib.curl_slist_free_all(h->headers);
    h->headers = NULL;
}

void http_close(struct http *h)
{
    if (h == NULL)
        return;
    if (h->easy != NULL)
        h->lib.curl_easy_cleanup(h->easy);
    if (h->multi != NULL)
        h->lib.curl_multi_cleanup(h->multi);
    forget_headers(h);
    h->lib.curl_url_cleanup(h->url);
    free(h);
}

const char *http_header(const struct http *h, const char *name)
{
    struct curl_header *found = NULL;

    if (h->lib.curl_easy_header(h->easy, name, 0, CURLH_HEADER, -1, &found) != CURLHE_OK)
        return NULL;
    return found->value;
}

const char *http_host(const struct http *h)
{
    return h->host;
}

int64_t http_exchange_parse_date(const struct http *h, const char *text)
{
    return h->lib.curl_getdate(text, NULL);
}

/* ---- where to: https, or http to this machine ---- */

/* curl_url_get(3) gives IPv4 addresses in dotted decimal, in whatever way they were written. "localhost" is
 * never looked up by libcurl, but known (RFC 6761 6.3). */
static bool is_loopback(const char *host)
{
    unsigned char address[4];

    if (inet_pton(AF_INET, host, address) == 1)
        return address[0] == 127;
    return strcmp(host, "[::1]") == 0 || strcasecmp(host, "localhost") == 0;
}

/* Copies a part of h->url; "" when it has none. */
static void url_part(const struct http *h, CURLUPart which, char *out, size_t room)
{
    char *part = NULL;

    out[0] = '\0';
    if (h->lib.curl_url_get(h->url, which, &part, 0) == CURLUE_OK)
        text_clean(out, room, part, strlen(part));
    h->lib.curl_free(part);
}

/* Reads URL into h->url; false when there is no way to go there. */
static bool read_url(struct http *h, const char *url)
{
    char scheme[8];
    bool valid;

    h->lib.curl_url_cleanup(h->url);
    h->url = h->lib.curl_url();
    if (h->url == NULL)
        mem_exhausted();
    valid = h->lib.curl_url_set(h->url, CURLUPART_URL, url, CURLU_DISALLOW_USER) == CURLUE_OK;
    url_part(h, CURLUPART_SCHEME, scheme, sizeof(scheme));
    url_part(h, CURLUPART_HOST, h->host, sizeof(h->host));
    h->encrypted = strcmp(scheme, "https") == 0;
    return valid && (h->encrypted || (strcmp(scheme, "http") == 0 && is_loopback(h->host)));
}

int http_exchange_aim(struct http *h, const char *url, bool redirected, struct error *e)
{
    bool from_encrypted = redirected && h->encrypted;
    char from[sizeof(h->host)];

    memcpy(from, h->host, sizeof(from));
    if (!read_url(h, url))
        return redirected
                   ? error_set(e, ERROR_ACTION_FAILED, 0, "'%s' redirects to what is no https address", from)
                   : error_set(
                         e, ERROR_INVALID_ARGS, 0,
                         "the address%s%s is neither https nor http to a loopback address, or not valid",
                         h->host[0] == '\0' ? "" : " of ", h->host);
    if (from_encrypted && !h->encrypted)
        return error_set(e, ERROR_ACTION_FAILED, 0, "'%s' redirects from https to http", from);
    return 0;
}

/* ---- what curl calls ---- */

/* The media type alone, in lower case: "application/json". */
static void read_type(const struct http *h, char *out, size_t room)
{
    const char *value = http_header(h, "Content-Type");
    size_t length = value == NULL ? 0 : strcspn(value, "; \t,");

    if (length >= room) /* nothing that anybody looks for */
        length = 0;
    for (size_t i = 0; i < length; i++)
        out[i] = (char)tolower((unsigned char)value[i]);
    out[length] = '\0';
}

static bool is_good(const struct http_answer *a)
{
    return a->status / 100 == 2;
}

static void fill_head(struct transfer *t, long status)
{
    curl_off_t size = -1;

    t->head_read = true;
    t->h->lib.curl_easy_getinfo(t->h->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &size);
    t->a->fate = HTTP_ANSWERED;
    t->a->status = (int)status;
    t->a->size = size;
    read_type(t->h, t->a->type, sizeof(t->a->type));
}

static long get_status(const struct transfer *t)
{
    long status = 0;

    t->h->lib.curl_easy_getinfo(t->h->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* Returns what the callback says. */
static int read_head(struct transfer *t)
{
    fill_head(t, get_status(t));
    if (!is_good(t->a) || t->r->on_head == NULL)
        return HTTP_GO_ON;
    return t->r->on_head(t->r->self, t->a, t->e);
}

static int keep_body(struct transfer *t, const char *bytes, size_t size)
{
    size_t room = t->r->max - t->a->body.size;

    if (size > room && is_good(t->a))
        return error_set(t->e, ERROR_ACTION_FAILED, 0, "'%s' sends more than %zu bytes", t->h->host,
                         t->r->max);
    text_add(&t->a->body, bytes, size > room ? room : size);
    return HTTP_GO_ON;
}

static int give_body(struct transfer *t, const char *bytes, size_t size)
{
    int next = t->head_read ? HTTP_GO_ON : read_head(t);

    if (next != HTTP_GO_ON)
        return next;
    if (!is_good(t->a) || t->r->on_body == NULL)
        return keep_body(t, bytes, size);
    t->x->given = true;
    return t->r->on_body(t->r->self, bytes, size, t->e);
}

/* Notes what a callback answered; true: go on. */
static bool note(struct transfer *t, int next)
{
    t->enough = t->enough || next == HTTP_ENOUGH;
    t->failed = t->failed || next < 0;
    return next == HTTP_GO_ON;
}

static size_t curl_writes(char *bytes, size_t one, size_t size, void *self)
{
    return note(self, give_body(self, bytes, one * size)) ? one * size : 0;
}

static size_t curl_reads(char *bytes, size_t one, size_t room, void *self)
{
    struct transfer *t = self;
    long got = t->r->on_read(t->r->self, t->sent, bytes, one * room, t->e);

    if (got < 0) {
        note(t, -1);
        return CURL_READFUNC_ABORT;
    }
    t->sent += got;
    return (size_t)got;
}

/* ---- setting up ---- */

static const char *get_setting(const char *name)
{
    const char *value = getenv(name);

    return value == NULL || value[0] == '\0' ? NULL : value;
}

static void add_header(struct http *h, const char *line)
{
    struct curl_slist *longer = h->lib.curl_slist_append(h->headers, line);

    if (longer == NULL)
        mem_exhausted();
    h->headers = longer;
}

static void set_headers(struct http *h, const struct http_request *r)
{
    bool typed = false;

    forget_headers(h);
    for (const struct http_header *f = r->headers; f != NULL && f->name != NULL; f++) {
        AUTO_WIPE char *line = mem_print("%s: %s", f->name, f->value);

        typed = typed || strcasecmp(f->name, "Content-Type") == 0;
        add_header(h, line);
    }
    if (!typed)
        add_header(h, "Content-Type:"); /* none, rather than curl's guess */
    add_header(h, "Expect:");           /* no second's pause for servers that do not know 100-continue */
    h->lib.curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, h->headers);
}

static void set_body(struct transfer *t)
{
    const struct http_request *r = t->r;
    const struct libcurl *lib = &t->h->lib;
    CURL *easy = t->h->easy;

    if (r->on_read != NULL) {
        lib->curl_easy_setopt(easy, CURLOPT_POST, 1L);
        lib->curl_easy_setopt(easy, CURLOPT_READFUNCTION, curl_reads);
        lib->curl_easy_setopt(easy, CURLOPT_READDATA, t);
    } else {
        lib->curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->body_size > 0 ? r->body : "");
    }
    lib->curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_size);
}

static void set_method(struct transfer *t)
{
    const char *method = t->r->method;
    const struct libcurl *lib = &t->h->lib;
    bool with_body = t->r->on_read != NULL || t->r->body_size > 0;

    if (method != NULL && strcmp(method, "HEAD") == 0) {
        lib->curl_easy_setopt(t->h->easy, CURLOPT_NOBODY, 1L);
        return;
    }
    if (with_body || (method != NULL && strcmp(method, "POST") == 0))
        set_body(t);
    if (method != NULL)
        lib->curl_easy_setopt(t->h->easy, CURLOPT_CUSTOMREQUEST, method);
}

/* Where a libcurl looks that was built without a place for certificates, as static ones for macOS are. */
static const char *get_system_bundle(const struct http *h)
{
    char *file = NULL, *directory = NULL;

    h->lib.curl_easy_getinfo(h->easy, CURLINFO_CAINFO, &file);
    h->lib.curl_easy_getinfo(h->easy, CURLINFO_CAPATH, &directory);
    return file == NULL && directory == NULL ? "/etc/ssl/cert.pem" : NULL;
}

/* As the curl program reads its environment; the library reads the proxies' part of it by itself. */
static void set_trust(struct http *h)
{
    const char *bundle = get_setting("CURL_CA_BUNDLE");
    const char *file = bundle != NULL ? bundle : get_setting("SSL_CERT_FILE");
    const char *directory = bundle != NULL ? NULL : get_setting("SSL_CERT_DIR");

    if (file == NULL && directory == NULL)
        file = get_system_bundle(h);
    if (file != NULL) {
        h->lib.curl_easy_setopt(h->easy, CURLOPT_CAINFO, file);
        h->lib.curl_easy_setopt(h->easy, CURLOPT_PROXY_CAINFO, file);
    }
    if (directory != NULL) {
        h->lib.curl_easy_setopt(h->easy, CURLOPT_CAPATH, directory);
        h->lib.curl_easy_setopt(h->easy, CURLOPT_PROXY_CAPATH, directory);
    }
}

/* What stays at curl's default and matters: certificates and host names are verified, redirects are not
 * followed, no cookies, no .netrc. Schemes need no option: read_url() has seen to it. */
static void set_up(struct transfer *t)
{
    const struct libcurl *lib = &t->h->lib;
    CURL *easy = t->h->easy;

    lib->curl_easy_reset(easy);
    t->h->curl_says[0] = '\0';
    lib->curl_easy_setopt(easy, CURLOPT_CURLU, t->h->url);
    lib->curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->h->curl_says);
    lib->curl_easy_setopt(easy, CURLOPT_USERAGENT, "agent-desktop/" AD_VERSION);
    lib->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, curl_writes);
    lib->curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
    lib->curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_SIZE);
    lib->curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    lib->curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* a name server that is silent must not hold us */
    lib->curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    lib->curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    if (is_loopback(t->h->host))
        lib->curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    if (t->r->compressed)
        lib->curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, ""); /* all that this libcurl knows */
    if (t->r->repeat == HTTP_ONCE)
        lib->curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    set_trust(t->h);
    set_headers(t->h, t->r);
    set_method(t);
}

/* ---- running ---- */

static int64_t count_moved(const struct transfer *t)
{
    curl_off_t down = 0, up = 0;

    t->h->lib.curl_easy_getinfo(t->h->easy, CURLINFO_SIZE_DOWNLOAD_T, &down);
    t->h->lib.curl_easy_getinfo(t->h->easy, CURLINFO_SIZE_UPLOAD_T, &up);
    return down + up;
}

/* A wait that took longer than it was to take is the machine's sleep, not the peer's silence. */
static bool is_stalled(struct transfer *t, int64_t waited_ms, int limit_ms)
{
    int64_t moved = count_moved(t);

    if (t->r->stall_ms == 0)
        return false;
    t->stalled_ms += waited_ms < limit_ms ? waited_ms : limit_ms;
    if (moved - t->stall_mark >= (t->r->stall_bytes > 0 ? t->r->stall_bytes : 1)) {
        t->stall_mark = moved;
        t->stalled_ms = 0;
    }
    return t->stalled_ms >= t->r->stall_ms;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int wait_limit(const struct transfer *t, int64_t now)
{
    int64_t limit = POLL_MS;

    if (t->deadline_at >= 0)
        limit = least(limit, t->deadline_at - now);
    if (t->r->stall_ms > 0)
        limit = least(limit, t->r->stall_ms - t->stalled_ms);
    return limit < 0 ? 0 : (int)limit;
}

/* Waits for the peer or the caller's descriptor. DONE: go on; REFUSED, BROKEN, LATE. */
static enum http_end wait_for_peer(struct transfer *t)
{
    struct curl_waitfd wake = { .fd = t->r->wake_fd, .events = CURL_WAIT_POLLIN };
    int64_t before = clock_mono_ms(), after;
    int limit = wait_limit(t, before);
    CURLMcode code =
        t->h->lib.curl_multi_poll(t->h->multi, &wake, t->r->on_wake != NULL ? 1 : 0, limit, NULL);

    after = clock_mono_ms();
    if (code != CURLM_OK) {
        snprintf(t->x->why, sizeof(t->x->why), "%s", t->h->lib.curl_multi_strerror(code));
        return HTTP_END_BROKEN;
    }
    if ((wake.revents & CURL_WAIT_POLLIN) != 0 && t->r->on_wake != NULL &&
        !note(t, t->r->on_wake(t->r->self, t->e)))
        return t->failed ? HTTP_END_REFUSED : HTTP_END_DONE;
    if (t->deadline_at >= 0 && after >= t->deadline_at)
        return HTTP_END_LATE;
    if (is_stalled(t, after - before, limit)) {
        snprintf(t->x->why, sizeof(t->x->why), "no more data came for %d ms", t->r->stall_ms);
        return HTTP_END_BROKEN;
    }
    return HTTP_END_DONE;
}

/* Results that another attempt would only repeat. */
static bool is_hopeless(CURLcode code)
{
    static const CURLcode hopeless[] = {
        CURLE_UNSUPPORTED_PROTOCOL,  CURLE_URL_MALFORMAT,
        CURLE_NOT_BUILT_IN,          CURLE_SSL_ENGINE_NOTFOUND,
        CURLE_SSL_CERTPROBLEM,       CURLE_SSL_CIPHER,
        CURLE_BAD_CONTENT_ENCODING,  CURLE_PEER_FAILED_VERIFICATION,
        CURLE_SSL_CACERT_BADFILE,    CURLE_SSL_ISSUER_ERROR,
        CURLE_SSL_INVALIDCERTSTATUS,
    };

    for (size_t i = 0; i < ARRAY_LEN(hopeless); i++)
        if (code == hopeless[i])
            return true;
    return false;
}

static enum http_end judge(struct transfer *t, CURLcode code)
{
    const char *why = t->h->curl_says[0] != '\0' ? t->h->curl_says : t->h->lib.curl_easy_strerror(code);

    if (code == CURLE_OUT_OF_MEMORY)
        mem_exhausted();
    if (t->failed)
        return HTTP_END_REFUSED;
    if (code == CURLE_OK || t->enough)
        return HTTP_END_DONE;
    text_clean(t->x->why, sizeof(t->x->why), why, strlen(why));
    return is_hopeless(code) ? HTTP_END_HOPELESS : HTTP_END_BROKEN;
}

/* Until the transfer has ended, by itself or because we leave it. */
static enum http_end drive(struct transfer *t)
{
    for (;;) {
        int running = 0, ignored;
        CURLMcode code = t->h->lib.curl_multi_perform(t->h->multi, &running);
        const CURLMsg *message = t->h->lib.curl_multi_info_read(t->h->multi, &ignored);
        enum http_end end;

        if (message != NULL && message->msg == CURLMSG_DONE)
            return judge(t, message->data.result);
        if (code != CURLM_OK || running == 0) {
            snprintf(t->x->why, sizeof(t->x->why), "%s", t->h->lib.curl_multi_strerror(code));
            return HTTP_END_BROKEN;
        }
        end = wait_for_peer(t);
        if (end != HTTP_END_DONE || t->enough)
            return end;
    }
}

/* What is known when the exchange has ended without a byte of a body. "Pretransfer" is when libcurl is about
 * to send: it stays 0 as long as there is no connection, through a proxy and with TLS. */
static enum http_end finish_head(struct transfer *t, enum http_end end)
{
    curl_off_t pretransfer_us = 0;
    long status = get_status(t);

    if (t->head_read)
        return end;
    if (end == HTTP_END_DONE && !t->enough)
        return note(t, read_head(t)) || t->enough ? end : HTTP_END_REFUSED;
    if (status >= 200) { /* 1xx is no answer yet */
        fill_head(t, status);
        return end;
    }
    t->h->lib.curl_easy_getinfo(t->h->easy, CURLINFO_PRETRANSFER_TIME_T, &pretransfer_us);
    t->a->fate = pretransfer_us > 0 ? HTTP_UNKNOWN : HTTP_NOT_SENT;
    return end;
}

static void read_redirect(struct transfer *t)
{
    char *target = NULL;

    if (t->a->status / 100 != 3)
        return;
    t->h->lib.curl_easy_getinfo(t->h->easy, CURLINFO_REDIRECT_URL, &target);
    t->x->redirect = target == NULL ? NULL : mem_copy_text(target);
}

enum http_end http_exchange_run(struct http *h, const struct http_request *r, int64_t deadline_at,
                                struct http_answer *a, struct http_exchange *x, struct error *e)
{
    struct transfer t = { .h = h, .r = r, .a = a, .x = x, .e = e, .deadline_at = deadline_at };
    enum http_end end;

    *x = (struct http_exchange){ 0 };
    a->fate = HTTP_NOT_SENT;
    a->status = 0;
    a->type[0] = '\0';
    a->size = -1;
    text_done(&a->body);
    set_up(&t);
    if (h->lib.curl_multi_add_handle(h->multi, h->easy) != CURLM_OK)
        mem_exhausted();
    end = finish_head(&t, drive(&t));
    if (t.head_read && !is_good(a) && (end == HTTP_END_BROKEN || end == HTTP_END_LATE))
        end = HTTP_END_DONE; /* what is missing of its body must not hide a refusal */
    read_redirect(&t);
    h->lib.curl_multi_remove_handle(h->multi, h->easy);
    return end;
}
