#include "tools/agent-desktop/context.h"

#include "core/host.h"

static int open_journal(struct context *c, struct error *e)
{
    enum journal_mode mode = c->mode == CONTEXT_READ ? JOURNAL_READ : JOURNAL_WRITE;

    c->journal = NULL;
    if (c->root.dir >= 0 && journal_open(&c->root, mode, &c->journal, e) < 0)
        return -1;
    c->engine = (struct engine){
        .journal = &journal_lmdb_ops, .journal_self = c->journal, .host = &host_system, .host_self = &c->root
    };
    return 0;
}

int context_open(struct context *c, enum context_mode mode, struct error *e)
{
    *c = (struct context)CONTEXT_CLOSED;
    c->mode = mode;
    if (root_open(mode == CONTEXT_CREATE ? ROOT_WRITE : ROOT_READ, &c->root, e) < 0)
        return -1;
    return open_journal(c, e);
}

int context_upgrade(struct context *c, enum context_mode mode, struct error *e)
{
    if (c->mode >= mode)
        return 0;
    if (mode == CONTEXT_CREATE) {
        context_close(c);
        return context_open(c, mode, e);
    }
    context_suspend(c);
    c->mode = mode;
    return open_journal(c, e);
}

void context_suspend(struct context *c)
{
    journal_close(c->journal);
    c->journal = NULL;
    c->engine.journal_self = NULL;
}

int context_resume(struct context *c, struct error *e)
{
    return c->journal != NULL ? 0 : open_journal(c, e);
}

void context_close(struct context *c)
{
    context_suspend(c);
    root_close(&c->root);
}
