/* The flow that a packet belongs to. Whole TCP and UDP packets without options are read where they lie;
 * everything else (options, extension headers, fragments, ICMP) by copies. */
#pragma once
#include "wire.h"

#define ICMP_ECHO_REPLY 0
#define ICMP_UNREACHABLE 3
#define ICMP_ECHO 8
#define ICMP_EXCEEDED 11
#define ICMP_PARAMETER 12
#define ICMPV6_LAST_ERROR 4
#define ICMPV6_ECHO 128
#define ICMPV6_ECHO_REPLY 129
#define MOST_EXTENSIONS 4

enum kind {
	KIND_BAD,      /* contradicts itself, or is cut short */
	KIND_FLOW,     /* `key` is its flow's */
	KIND_ERROR,    /* an ICMP error: `key` is that of the packet that it quotes */
	KIND_FRAGMENT, /* not the first one: only `fragment` says whose */
};

struct fragment_key {
	__u32 source[4], destination[4];
	__u32 id, protocol;
};

struct parsed {
	__u32 key[10]; /* struct key4 or key6 */
	__u32 kind;
	__u32 turned; /* it comes from the higher end */
	__u32 tcp_flags;
	__u32 fragmented; /* `fragment` says of which packet */
	struct fragment_key fragment;
};

INLINE void set_key4(struct parsed *p, __u32 source, __u32 destination, __be16 sport, __be16 dport,
		     __u32 protocol)
{
	struct key4 *key = (void *)p->key;
	__u64 from = (__u64)source << 16 | sport, to = (__u64)destination << 16 | dport;
	p->turned = from > to;
	key->low = p->turned ? destination : source;
	key->high = p->turned ? source : destination;
	key->ports = p->turned ? (__u32)sport << 16 | dport : (__u32)dport << 16 | sport;
	key->protocol = protocol;
}

INLINE int is_above(const __u32 *one, const __u32 *other, __be16 port, __be16 other_port)
{
	__u64 a = load64(one), b = load64(other);
	if (a != b)
		return a > b;
	a = load64(one + 2), b = load64(other + 2);
	if (a != b)
		return a > b;
	return port > other_port;
}

INLINE void set_key6(struct parsed *p, const __u32 *source, const __u32 *destination, __be16 sport,
		     __be16 dport, __u32 protocol)
{
	struct key6 *key = (void *)p->key;
	p->turned = is_above(source, destination, sport, dport);
	const __u32 *low = p->turned ? destination : source, *high = p->turned ? source : destination;
	store64(key->low, load64(low));
	store64(key->low + 2, load64(low + 2));
	store64(key->high, load64(high));
	store64(key->high + 2, load64(high + 2));
	key->ports = p->turned ? (__u32)sport << 16 | dport : (__u32)dport << 16 | sport;
	key->protocol = protocol;
}

INLINE long copy(void *ctx, __u32 at, void *to, __u32 bytes, const int is_skb)
{
	return is_skb ? bpf_skb_load_bytes(ctx, at, to, bytes) : bpf_xdp_load_bytes(ctx, at, to, bytes);
}

struct icmp_start {
	__u8 type, code;
	__sum16 checksum;
	__be16 id, sequence;
};

/* The ports of TCP or UDP, an echo's id; of anything else, none. */
INLINE int read_ports(void *ctx, __u32 at, __u32 protocol, __be16 ports[2], __u32 *flags,
		      const int is_skb, const int whole)
{
	ports[0] = ports[1] = 0;
	if (protocol == IPPROTO_TCP) {
		struct tcp tcp;
		if (!whole)
			return copy(ctx, at, ports, 4, is_skb);
		if (copy(ctx, at, &tcp, sizeof(tcp), is_skb))
			return -1;
		ports[0] = tcp.source;
		ports[1] = tcp.destination;
		*flags = tcp.flags;
	} else if (protocol == IPPROTO_UDP) {
		return copy(ctx, at, ports, 4, is_skb);
	} else if (protocol == IPPROTO_ICMP || protocol == NEXT_ICMPV6) {
		struct icmp_start icmp;
		if (copy(ctx, at, &icmp, sizeof(icmp), is_skb))
			return -1;
		int echo = protocol == IPPROTO_ICMP
				   ? icmp.type == ICMP_ECHO || icmp.type == ICMP_ECHO_REPLY
				   : icmp.type == ICMPV6_ECHO || icmp.type == ICMPV6_ECHO_REPLY;
		if (echo)
			ports[0] = ports[1] = icmp.id;
	}
	return 0;
}

INLINE int parse_slow4(void *ctx, __u32 at, struct parsed *p, const int is_skb)
{
	struct ipv4 ip;
	__be16 ports[2];
	if (copy(ctx, at, &ip, sizeof(ip), is_skb) || ip.version_ihl >> 4 != 4)
		return KIND_BAD;
	__u32 header = (ip.version_ihl & 15) * 4;
	if (header < IPV4_BYTES || bpf_ntohs(ip.length) < header)
		return KIND_BAD;
	__u32 l4 = at + header;
	if (ip.fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET)) {
		p->fragmented = 1;
		p->fragment = (struct fragment_key){.source = {ip.source},
						    .destination = {ip.destination},
						    .id = ip.id,
						    .protocol = ip.protocol | 4 << 8};
		if (ip.fragment & FRAGMENT_OFFSET)
			return KIND_FRAGMENT;
	}
	if (ip.protocol == IPPROTO_ICMP) {
		struct icmp_start icmp;
		struct ipv4 in;
		if (copy(ctx, l4, &icmp, sizeof(icmp), is_skb))
			return KIND_BAD;
		if (icmp.type == ICMP_UNREACHABLE || icmp.type == ICMP_EXCEEDED || icmp.type == ICMP_PARAMETER) {
			if (copy(ctx, l4 + 8, &in, sizeof(in), is_skb) || (in.version_ihl & 15) < 5 ||
			    (in.fragment & FRAGMENT_OFFSET) ||
			    read_ports(ctx, l4 + 8 + (in.version_ihl & 15) * 4, in.protocol, ports,
				       &p->tcp_flags, is_skb, 0))
				return KIND_BAD;
			set_key4(p, in.source, in.destination, ports[0], ports[1], in.protocol);
			/* It travels against what it quotes. */
			p->turned = !p->turned;
			return KIND_ERROR;
		}
	}
	if (read_ports(ctx, l4, ip.protocol, ports, &p->tcp_flags, is_skb, 1))
		return KIND_BAD;
	set_key4(p, ip.source, ip.destination, ports[0], ports[1], ip.protocol);
	return KIND_FLOW;
}

struct extension {
	__u8 next, length;
};

struct fragment_header {
	__u8 next, reserved;
	__be16 offset;
	__u32 id;
};

/* Past the extension headers: where the rest begins, or 0. */
INLINE __u32 past_extensions(void *ctx, __u32 at, __u8 *next, struct parsed *p, const int is_skb)
{
	for (int i = 0; i < MOST_EXTENSIONS; i++) {
		struct extension extension;
		if (*next == NEXT_FRAGMENT) {
			struct fragment_header fragment;
			if (copy(ctx, at, &fragment, sizeof(fragment), is_skb))
				return 0;
			*next = fragment.next;
			at += sizeof(fragment);
			p->fragmented = 1;
			p->fragment.id = fragment.id;
			if (fragment.offset & bpf_htons(0xfff8)) {
				p->kind = KIND_FRAGMENT;
				return at;
			}
		} else if (*next == 0 || *next == 43 || *next == 60) {
			if (copy(ctx, at, &extension, sizeof(extension), is_skb))
				return 0;
			*next = extension.next;
			at += (extension.length + 1) * 8;
		} else {
			return at;
		}
	}
	return 0;
}

INLINE int parse_slow6(void *ctx, __u32 at, struct parsed *p, const int is_skb)
{
	struct ipv6 ip __attribute__((aligned(8)));
	__be16 ports[2];
	if (copy(ctx, at, &ip, sizeof(ip), is_skb) ||
	    (ip.version_class_flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
		return KIND_BAD;
	__u8 next = ip.next;
	p->kind = KIND_FLOW;
	__u32 l4 = past_extensions(ctx, at + IPV6_BYTES, &next, p, is_skb);
	if (!l4)
		return KIND_BAD;
	if (p->fragmented) {
		__builtin_memcpy(p->fragment.source, ip.source, 16);
		__builtin_memcpy(p->fragment.destination, ip.destination, 16);
		p->fragment.protocol = 6 << 8;
		if (p->kind == KIND_FRAGMENT)
			return KIND_FRAGMENT;
	}
	if (next == NEXT_ICMPV6) {
		struct icmp_start icmp;
		struct ipv6 in __attribute__((aligned(8)));
		if (copy(ctx, l4, &icmp, sizeof(icmp), is_skb))
			return KIND_BAD;
		if (icmp.type && icmp.type <= ICMPV6_LAST_ERROR) {
			if (copy(ctx, l4 + 8, &in, sizeof(in), is_skb) ||
			    read_ports(ctx, l4 + 8 + IPV6_BYTES, in.next, ports, &p->tcp_flags, is_skb, 0))
				return KIND_BAD;
			set_key6(p, in.source, in.destination, ports[0], ports[1], in.next);
			p->turned = !p->turned;
			return KIND_ERROR;
		}
	}
	if (read_ports(ctx, l4, next, ports, &p->tcp_flags, is_skb, 1))
		return KIND_BAD;
	set_key6(p, ip.source, ip.destination, ports[0], ports[1], next);
	return KIND_FLOW;
}

/* A packet whose IP header begins at `at`; `type` is its EtherType. Returns its kind. */
INLINE int parse_slow(void *ctx, __u32 at, __be16 type, struct parsed *p, const int is_skb)
{
	__builtin_memset(p, 0, sizeof(*p));
	p->kind = type == ETH_IPV4 ? parse_slow4(ctx, at, p, is_skb)
		  : type == ETH_IPV6 ? parse_slow6(ctx, at, p, is_skb)
				     : KIND_BAD;
	return p->kind;
}

__attribute__((unused)) static __noinline int parse_slow_xdp(struct xdp_md *ctx, __u32 at, __be16 type, struct parsed *p)
{
	return parse_slow(ctx, at, type, p, 0);
}

/* The usual packet, read in place: 1 where it is one. */
INLINE int parse_quick4(const struct ipv4 *ip, const void *end, struct parsed *p)
{
	const struct tcp *tcp = (const void *)(ip + 1);
	if ((const void *)tcp + UDP_BYTES > end || ip->version_ihl != 0x45 ||
	    (ip->fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET)))
		return 0;
	if (ip->protocol == IPPROTO_TCP) {
		if ((const void *)(tcp + 1) > end)
			return 0;
		p->tcp_flags = tcp->flags;
	} else if (ip->protocol == IPPROTO_UDP) {
		p->tcp_flags = 0;
	} else {
		return 0;
	}
	p->kind = KIND_FLOW;
	p->fragmented = 0;
	set_key4(p, ip->source, ip->destination, tcp->source, tcp->destination, ip->protocol);
	return 1;
}

INLINE int parse_quick6(const struct ipv6 *ip, const void *end, struct parsed *p)
{
	const struct tcp *tcp = (const void *)(ip + 1);
	if ((const void *)tcp + UDP_BYTES > end)
		return 0;
	if (ip->next == IPPROTO_TCP) {
		if ((const void *)(tcp + 1) > end)
			return 0;
		p->tcp_flags = tcp->flags;
	} else if (ip->next == IPPROTO_UDP) {
		p->tcp_flags = 0;
	} else {
		return 0;
	}
	p->kind = KIND_FLOW;
	p->fragmented = 0;
	set_key6(p, ip->source, ip->destination, tcp->source, tcp->destination, ip->next);
	return 1;
}

/* By the copies that a per-CPU map has room for: stacks are short. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct parsed);
} parse_room SEC(".maps");

INLINE struct parsed *room(__u32 which)
{
	return bpf_map_lookup_elem(&parse_room, &which);
}
