/* For measurements and attacks by test runs, never attached: the balancer's program behind a preamble
 * that makes flows, the preamble by itself, and a balancer with a connection table. Loaded onto the
 * pinned maps of a running balancer. Names: KIND_FAMILY_BODY. */
#include "../balancer.bpf.c"
#include "flows.h"
#include "lru.h"

#define PROGRAM(name, family, kind, body)                \
	SEC("xdp") int name(struct xdp_md *ctx)          \
	{                                                \
		if (prepare_##family(ctx, kind))         \
			return XDP_ABORTED;              \
		FORGET(ctx);                             \
		return body;                             \
	}

#define BOTH(name, family, kind)                                 \
	PROGRAM(name##_preamble, family, kind, XDP_TX)           \
	PROGRAM(name##_balancer, family, kind, balance(ctx))

BOTH(plain_v4, v4, PLAIN)
BOTH(plain_v6, v6, PLAIN)
BOTH(established_v4, v4, ESTABLISHED)
BOTH(established_v6, v6, ESTABLISHED)
BOTH(forged_v4, v4, FORGED)
BOTH(reply_v4, v4, REPLY)
BOTH(reply_v6, v6, REPLY)

PROGRAM(plain_v4_table, v4, PLAIN, lru_v4(ctx))
PROGRAM(plain_v6_table, v6, PLAIN, lru_v6(ctx))
