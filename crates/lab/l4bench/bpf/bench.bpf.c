/* For measurements and attacks by test runs: the balancer's program behind a preamble that makes flows,
 * the preamble by itself, balancers with a connection table and without a cookie (names:
 * KIND_FAMILY_BODY), a generator of frames, and the balancers without a cookie to be attached. Loaded onto
 * the pinned maps of a running balancer. */
#include "balancer.bpf.c"
#include "flows.h"
#include "generator.h"
#include "lru.h"
#include "rival.h"

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

SEC("xdp") int generate_requests(struct xdp_md *ctx)
{
	return generate_v4(ctx, ESTABLISHED);
}

SEC("xdp") int generate_replies(struct xdp_md *ctx)
{
	return generate_v4(ctx, REPLY);
}

SEC("xdp") int count_arrived(struct xdp_md *ctx)
{
	return count_arrival(ctx);
}

PROGRAM(plain_v4_table, v4, PLAIN, lru_v4(ctx))
PROGRAM(plain_v6_table, v6, PLAIN, lru_v6(ctx))
PROGRAM(plain_v4_hash, v4, PLAIN, rival_v4(ctx, 0))
PROGRAM(plain_v4_chained, v4, PLAIN, rival_v4(ctx, 1))

SEC("xdp") int by_hash(struct xdp_md *ctx)
{
	return rival_v4(ctx, 0);
}

SEC("xdp") int by_chain(struct xdp_md *ctx)
{
	return rival_v4(ctx, 1);
}

SEC("xdp") int pass_on_to_previous(struct xdp_md *ctx)
{
	return pass_on(ctx);
}
