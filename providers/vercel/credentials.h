/* providers/vercel/credentials.h - who we are for the service: a token, a team, a project.
 *
 * Looked for in one order, for every command:
 *   1. VERCEL_OIDC_TOKEN, unless it has expired;
 *   2. VERCEL_TOKEN with VERCEL_TEAM_ID and VERCEL_PROJECT_ID; what is missing of these two is taken from
 *      .vercel/project.json, in the nearest directory upwards that holds a .vercel of ours;
 *   3. VERCEL_OIDC_TOKEN of the .env.local beside that .vercel.
 * Ours is what belongs to us or to root and cannot be written by all; a .vercel that is not, or that is a
 * link, is passed by, and a file that is not is an error. Links to the files are followed where only we can
 * have made them.
 * A token that is a JWT (@vercel/oidc 3.2.0: "owner_id", "project_id", "exp" in seconds) is not verified,
 * only read. The vendor's own log-in (auth.json) is neither read nor written. The token goes into the
 * Authorization header and nowhere else: not into a message, the journal, a file, argv, a log. */
#ifndef PROVIDERS_VERCEL_CREDENTIALS_H
#define PROVIDERS_VERCEL_CREDENTIALS_H

#include "core/error.h"

#define VERCEL_ID_SIZE                                                                                       \
    72 /* of a team, project, session, snapshot or command; ids are opaque, about 30 bytes */

struct credentials { /* credentials_done() */
    char *token;     /* secret; credentials_done() overwrites this copy */
    char team[VERCEL_ID_SIZE];
    char project[VERCEL_ID_SIZE];
    const char *source; /* "VERCEL_TOKEN", "VERCEL_OIDC_TOKEN", ".env.local": for messages */
    const char
        *fix; /* of found ones: what makes them anew; else what makes them. A command line; NULL: none does */
    const char *project_source; /* what names the project: a variable, or a file */
    const char *project_fix;    /* what chooses another. A command line; NULL: none does */
};

/* Finds them from the environment and the working directory on; nothing is asked over the network. A token
 * that is a JWT with an owner_id decides the team, and the project where none is given. Errors, all naming
 * what was found where and what to do: PROVIDER_UNAVAILABLE when there are none, or they are not whole;
 * AUTH_FAILED when the only ones have expired (or will within a minute), or contradict themselves. */
int credentials_find(struct credentials *out, struct error *e);
void credentials_done(struct credentials *c); /* after credentials_find(), whatever it said */

/* As found, but for this team and project; NULL: as they are. AUTH_FAILED when the token is one for another
 * team or project than WHO names ("the sandbox", "--set"). */
int credentials_aim(struct credentials *c, const char *team, const char *project, const char *who,
                    struct error *e);

#endif
