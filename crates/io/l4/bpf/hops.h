/* What the kernel's routes said for a destination, remembered by each CPU for itself: to ask them costs more
 * than all else that is done with a reply. The daemon allows it only while the answer depends on nothing but
 * the destination, and begins a new generation once a second and whenever routes, rules, links or neighbours
 * change (src/replies): what was remembered under another one is forgotten. */
#pragma once
#include "maps.h"
#include "packet.h"

/* The one place of a destination; neighbours on a link have different ones. */
INLINE struct hop *hop_at(const __u32 *client, const int family)
{
	__u32 at, bits = hop_bits;
	if (family == 4)
		at = client[0] * 0x9e3779b1U >> (32 - bits);
	else
		at = (load64(client) * 0x9e3779b97f4a7c15ULL + load64(client + 2) * 0xd1342543de82ef95ULL) >>
		     (64 - bits);
	return bpf_map_lookup_elem(&hops, &at);
}

INLINE int is_hop_to(const struct hop *hop, __u64 tag, const __u32 *client, const int family)
{
	if (hop->tag != tag)
		return 0;
	if (family == 4)
		return hop->client[0] == client[0];
	return load64(hop->client) == load64(client) && load64(hop->client + 2) == load64(client + 2);
}

/* What is remembered now goes by; 0: nothing may be. Read before the routes are asked: an answer from before
 * a change is not remembered as one from after it. */
INLINE __u64 hop_tag(const struct way *way, __u64 now, const int family)
{
	return now < way->hops_until_ms ? way->generation << 8 | family : 0;
}

/* Link-local addresses, and what else is in fe00::/7, are on every interface. */
INLINE int is_link_local(const __u32 *client, const int family)
{
	return family == 6 && (client[0] & bpf_htonl(0xfe000000)) == bpf_htonl(0xfe000000);
}

INLINE void remember_hop(const struct bpf_fib_lookup *fib, __u64 tag, const __u32 *client, __u32 port,
			 const int family)
{
	struct hop *hop;
	if (!tag || dry_run || is_link_local(client, family))
		return;
	hop = hop_at(client, family);
	if (!hop)
		return;
	hop->tag = tag;
	if (family == 4)
		hop->client[0] = client[0];
	else
		__builtin_memcpy(hop->client, client, 16);
	__builtin_memcpy(hop->mac, fib->dmac, 6);
	__builtin_memcpy(hop->source_mac, fib->smac, 6);
	hop->port = port;
	hop->mtu = fib->mtu_result;
}
