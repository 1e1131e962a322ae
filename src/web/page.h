/* page.h: the page at /, made of page.html when the program is built
 * (tools/genpage.c). */
#ifndef QN_WEB_PAGE_H
#define QN_WEB_PAGE_H

#include "server/server.h"

/* With the policy that lets the page's own style and script run, and nothing
 * else. */
extern const qn_server_page qn_web_page;

#endif
