/* The forwarder: every packet of a flow, in both directions, to the instance that holds its state. New flows go
 * by slots that user space fills from the load that it predicts. */
#include "returned.h"

INLINE int is_within(const __u32 *address, const __u32 *network, const __u32 *mask)
{
	__u32 differs = 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		differs |= (address[i] & mask[i]) ^ network[i];
	return !differs;
}

struct first {
	__u32 source[4], destination[4];
	__u32 family, protocol;
	__u16 port; /* of the destination, host order */
};

/* The ends of a packet as its first one sees them. */
INLINE void ends_of(const struct parsed *p, struct first *first, const int family)
{
	__u32 ports;
	__builtin_memset(first, 0, sizeof(*first));
	first->family = family;
	if (family == 4) {
		const struct key4 *key = (const void *)p->key;
		first->source[0] = p->turned ? key->high : key->low;
		first->destination[0] = p->turned ? key->low : key->high;
		first->protocol = key->protocol;
		ports = key->ports;
	} else {
		const struct key6 *key = (const void *)p->key;
		__builtin_memcpy(first->source, p->turned ? key->high : key->low, 16);
		__builtin_memcpy(first->destination, p->turned ? key->low : key->high, 16);
		first->protocol = key->protocol;
		ports = key->ports;
	}
	first->port = bpf_ntohs(p->turned ? (__u16)ports : (__u16)(ports >> 16));
}

/* The service that a first packet is for; MAX_SERVICES: none. */
static __noinline __u32 find_service(const struct first *first)
{
	__u32 zero = 0;
	struct forwarder_config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c || !first)
		return MAX_SERVICES;
	__u32 half = c->rules_half & 1, many = c->rules[half];
	for (__u32 i = 0; i < MAX_RULES && i < many; i++) {
		__u32 at = half * MAX_RULES + i;
		struct rule *rule = bpf_map_lookup_elem(&rules, &at);
		if (!rule)
			break;
		if (rule->family != first->family || (rule->protocol && rule->protocol != first->protocol) ||
		    (rule->port_high && (first->port < rule->port_low || first->port > rule->port_high)))
			continue;
		if (is_within(first->destination, rule->destination, rule->destination_mask) &&
		    is_within(first->source, rule->source, rule->source_mask))
			return rule->service;
	}
	return MAX_SERVICES;
}

/* The next slot of a service: each CPU goes round by itself, from a place of its own. */
static __noinline __u32 next_target(__u32 service)
{
	__u32 zero = 0;
	struct forwarder_config *c = bpf_map_lookup_elem(&config, &zero);
	__u32 *turn = bpf_map_lookup_elem(&turns, &service);
	if (!c || !turn || service >= MAX_SERVICES)
		return MAX_TARGETS;
	__u32 at = service * 2 + (c->slots_half >> service & 1);
	struct slots *list = bpf_map_lookup_elem(&slots, &at);
	if (!list || !list->length || list->length > MAX_SLOTS)
		return MAX_TARGETS;
	__u64 place = (*turn + bpf_get_smp_processor_id() * 2654435761U) % list->length;
	(*turn)++;
	asm volatile("%0 &= %1" : "+r"(place) : "i"(MAX_SLOTS - 1));
	return list->target[place];
}

/* Group addresses and link-local ones are the kernel's, as is what is for this machine or a node itself. */
static __noinline int is_kernels(const struct first *first)
{
	struct address_key key = {};
	if (!first)
		return 1;
	__u32 head = first->destination[0];
	if (first->family == 4 && ((head & bpf_htonl(0xe0000000)) == bpf_htonl(0xe0000000) ||
				   (head & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000)))
		return 1;
	if (first->family == 6 && ((head & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000) ||
				   (head & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000)))
		return 1;
	__builtin_memcpy(key.address, first->destination, 16);
	key.family = first->family;
	return bpf_map_lookup_elem(&own, &key) != NULL;
}

/* A packet whose flow cannot be determined: no way round the chains where what no service matches is dropped. */
static __noinline int cannot_tell(struct xdp_md *ctx, __u32 type, __u32 why)
{
	__u32 zero = 0;
	struct first to = {.family = type == ETH_IPV4 ? 4 : 6};
	struct forwarder_config *c = bpf_map_lookup_elem(&config, &zero);
	count_reason(why);
	if (!c || !c->unmatched_drop)
		return XDP_PASS;
	if (type == ETH_IPV4 ? bpf_xdp_load_bytes(ctx, ETH_BYTES + 16, to.destination, 4)
			     : bpf_xdp_load_bytes(ctx, ETH_BYTES + 24, to.destination, 16))
		return XDP_DROP;
	return is_kernels(&to) ? XDP_PASS : XDP_DROP;
}

/* A new flow's target. MAX_TARGETS: none, and `verdict` says what becomes of the packet. */
INLINE __u32 choose(const struct parsed *p, int *verdict, const int family)
{
	__u32 zero = 0;
	struct first first;
	ends_of(p, &first, family);
	*verdict = XDP_PASS;
	struct forwarder_config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c || is_kernels(&first))
		return MAX_TARGETS;
	__u32 service = find_service(&first);
	if (service >= MAX_SERVICES) {
		count_reason(REASON_UNMATCHED);
		*verdict = c->unmatched_drop ? XDP_DROP : XDP_PASS;
		return MAX_TARGETS;
	}
	__u32 at = next_target(service);
	if (at >= MAX_TARGETS) {
		count_reason(REASON_NO_NODE);
		*verdict = XDP_DROP;
	}
	return at;
}

INLINE void count_opened(__u32 at)
{
	struct target_count *count = bpf_map_lookup_elem(&counts, &at);
	if (count)
		count->opened++;
}

/* What a packet says of its flow. */
INLINE void note(struct flow *flow, const struct parsed *p, __u32 seen, int back)
{
	__u16 signs = flow->signs;
	if (flow->seen_s != seen)
		flow->seen_s = seen;
	if (back)
		signs |= SIGN_ANSWERED;
	if (UNLIKELY(p->tcp_flags & (TCP_FIN | TCP_RST))) {
		if (p->tcp_flags & TCP_RST)
			signs |= SIGN_RESET;
		else
			signs |= back ? SIGN_FIN_BACK : SIGN_FIN;
	} else if (UNLIKELY((p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)) {
		signs &= ~(SIGN_FIN | SIGN_FIN_BACK | SIGN_RESET);
	} else if (UNLIKELY(signs & SIGN_RESET)) {
		/* The reset was forged, and its ends go on; of one that was not, what comes late is answered by another. */
		signs &= ~SIGN_RESET;
	}
	if (signs != flow->signs)
		flow->signs = signs;
}

/* Old by its age, or by its packets before this one; an old flow's entry is not written. */
INLINE enum age age_of(struct flow *flow, __u32 now)
{
	__u32 age = now - flow->born_ms;
	if (age >= old_ms || flow->packets >= heavy)
		return AGE_OLD;
	flow->packets++;
	return age >= aging_ms ? AGE_AGING : AGE_YOUNG;
}

/* A flow that is not known, or whose node is gone. */
static __noinline int begin(struct xdp_md *ctx, struct parsed *p, __u32 family)
{
	int verdict;
	if (!p)
		return XDP_DROP;
	void *held = family == 4 ? bpf_map_lookup_elem(&flows4, p->key) : bpf_map_lookup_elem(&flows6, p->key);
	__u32 at = family == 4 ? choose(p, &verdict, 4) : choose(p, &verdict, 6);
	struct target *target = bpf_map_lookup_elem(&targets, &at);
	if (!target)
		return verdict;
	if (does_not_fit(ctx, target, family))
		return too_big(ctx, target->mtu);
	__u32 now = now_ms();
	struct flow6 made = {.flow = {.target = at,
				      .seen_s = now_seconds(),
				      .born_ms = now,
				      .signs = p->turned ? SIGN_TURNED : 0,
				      .packets = 1}};
	long failed;
	if (held) {
		count_reason(REASON_REHOMED);
		count_closed(held);
		failed = family == 4 ? bpf_map_update_elem(&flows4, p->key, &made, BPF_EXIST)
				     : bpf_map_update_elem(&flows6, p->key, &made, BPF_EXIST);
	} else {
		failed = family == 4 ? bpf_map_update_elem(&flows4, p->key, &made, BPF_NOEXIST)
				     : bpf_map_update_elem(&flows6, p->key, &made, BPF_NOEXIST);
	}
	if (failed == -17) { /* EEXIST: another CPU was first. */
		struct flow *flow = family == 4 ? bpf_map_lookup_elem(&flows4, p->key)
						: bpf_map_lookup_elem(&flows6, p->key);
		at = flow ? flow->target : MAX_TARGETS;
		target = bpf_map_lookup_elem(&targets, &at);
		if (!target)
			return XDP_DROP;
	} else if (failed) {
		count_reason(REASON_FULL);
		return XDP_DROP;
	} else {
		count_opened(at);
	}
	count_packet(at, ctx, AGE_YOUNG, 0);
	return encapsulate(ctx, target, 0, mix(p));
}

INLINE int to_flow(struct xdp_md *ctx, struct parsed *p, void *table, const int family)
{
	struct flow *flow = bpf_map_lookup_elem(table, p->key);
	__u32 at = flow ? flow->target : MAX_TARGETS;
	struct target *target = flow ? bpf_map_lookup_elem(&targets, &at) : NULL;
	if (UNLIKELY(!target || !target->live)) {
		if (p->kind == KIND_ERROR) {
			count_reason(REASON_ERROR_UNKNOWN);
			return XDP_PASS;
		}
		/* A reply to what a NAT made of its flow: no other node knows the flow. */
		if (flow && (flow->signs & SIGN_PEER) && p->turned != (flow->signs & SIGN_TURNED)) {
			count_reason(REASON_NO_NODE);
			return XDP_DROP;
		}
		return begin(ctx, p, family);
	}
	if (UNLIKELY(does_not_fit(ctx, target, family)))
		return too_big(ctx, target->mtu);
	__u64 clock = now_ms();
	__u32 now = clock, back = p->turned != (flow->signs & SIGN_TURNED);
	if (p->kind == KIND_FLOW)
		note(flow, p, clock / 1000, back);
	count_packet(at, ctx, age_of(flow, now), back);
	__u32 flags = back ? FLAG_REPLY : 0;
	if (UNLIKELY(p->fragmented)) {
		__u64 value = at | (__u64)flags << 32;
		bpf_map_update_elem(&fragments, &p->fragment, &value, BPF_ANY);
	}
	return encapsulate(ctx, target, flags, mix(p));
}

/* A fragment without ports goes after the first one of its packet. */
INLINE int to_first(struct xdp_md *ctx, struct parsed *p, __u32 type)
{
	__u64 *value = bpf_map_lookup_elem(&fragments, &p->fragment);
	__u32 at = value ? (__u32)*value : MAX_TARGETS;
	struct target *target = bpf_map_lookup_elem(&targets, &at);
	if (!value || !target || !target->live) {
		return cannot_tell(ctx, type, REASON_FRAGMENT_UNKNOWN);
	}
	count_packet(at, ctx, AGE_OLD, 0);
	return encapsulate(ctx, target, *value >> 32, p->fragment.id);
}

static __noinline int slow(struct xdp_md *ctx, __u32 type)
{
	struct parsed *p = room(0);
	if (!p)
		return XDP_DROP;
	switch (parse_slow_xdp(ctx, ETH_BYTES, type, p)) {
	case KIND_FLOW:
		/* The first fragment opens the flow before its fragments are noted: a second look. */
		if (type == ETH_IPV4 ? !bpf_map_lookup_elem(&flows4, p->key) : !bpf_map_lookup_elem(&flows6, p->key)) {
			if (!p->fragmented)
				return begin(ctx, p, type == ETH_IPV4 ? 4 : 6);
			struct parsed *kept = p;
			int verdict = begin(ctx, kept, type == ETH_IPV4 ? 4 : 6);
			struct flow *flow = type == ETH_IPV4 ? bpf_map_lookup_elem(&flows4, p->key)
							     : bpf_map_lookup_elem(&flows6, p->key);
			if (flow) {
				__u64 value = flow->target;
				bpf_map_update_elem(&fragments, &p->fragment, &value, BPF_ANY);
			}
			return verdict;
		}
		/* fallthrough */
	case KIND_ERROR:
		return type == ETH_IPV4 ? to_flow(ctx, p, &flows4, 4) : to_flow(ctx, p, &flows6, 6);
	case KIND_FRAGMENT:
		return to_first(ctx, p, type);
	default:
		return cannot_tell(ctx, type, REASON_MALFORMED);
	}
}

INLINE int forward4(struct xdp_md *ctx, struct ipv4 *ip, void *end)
{
	struct parsed p;
	struct udp *udp = (void *)(ip + 1);
	__u32 zero = 0;
	if (UNLIKELY((void *)(ip + 1) > end || bpf_ntohs(ip->length) > end - (void *)ip)) {
		return cannot_tell(ctx, ETH_IPV4, REASON_MALFORMED);
	}
	if (!parse_quick4(ip, end, &p))
		return slow(ctx, ETH_IPV4);
	if (UNLIKELY(ip->protocol == IPPROTO_UDP && (void *)(udp + 1) <= end && udp->destination == VXLAN_PORT)) {
		struct forwarder_config *c = bpf_map_lookup_elem(&config, &zero);
		if (c && c->address == ip->destination)
			return from_node(ctx);
	}
	return to_flow(ctx, &p, &flows4, 4);
}

INLINE int forward6(struct xdp_md *ctx, struct ipv6 *ip, void *end)
{
	struct parsed p;
	if (UNLIKELY((void *)(ip + 1) > end || bpf_ntohs(ip->length) + IPV6_BYTES > end - (void *)ip)) {
		return cannot_tell(ctx, ETH_IPV6, REASON_MALFORMED);
	}
	if (!parse_quick6(ip, end, &p))
		return slow(ctx, ETH_IPV6);
	return to_flow(ctx, &p, &flows6, 6);
}

SEC("xdp") int forwarder(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->type == ETH_IPV4)
		return forward4(ctx, (void *)(eth + 1), end);
	if (eth->type == ETH_IPV6)
		return forward6(ctx, (void *)(eth + 1), end);
	return XDP_PASS;
}

#include "sweep.h"

char LICENSE[] SEC("license") = "GPL";
