/* The server's agent: two programs on tcx that let replies go straight to the client.
 *
 *   egress    from the VIP: TSval gets the server's cookie in its upper half, as the balancer would write it
 *   ingress   to the VIP: TSecr gets the upper half back that the server's stack really sent
 *
 * They keep nothing about a connection. What an echo was before is known from the server's own clock and the
 * connection's random offset (net.ipv4.tcp_timestamps = 1), which the kernel keeps in its socket anyhow;
 * so servers may stay with Linux's default. One look at the socket table for each aggregated segment is
 * what that costs. */
#include "agent.h"

/* To whatever else is on the hook; TCX_NEXT of newer headers. */
#define NEXT -1
#define TCP_LISTEN_STATE 10
#define TIMESTAMPS_BYTES 10

/* What is read of the kernel's own structures; the loader finds the offsets by the kernel's BTF. */
struct tcp_sock {
	__u32 tsoffset;
} __attribute__((preserve_access_index));
struct tcp_request_sock {
	__u32 ts_off;
} __attribute__((preserve_access_index));
struct tcp_timewait_sock {
	__u32 tw_ts_offset;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct agent_settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct permutation);
} permutations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_AGENT_VIPS);
	__type(key, struct agent_vip_key);
	__type(value, struct agent_vip);
} vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_AGENT_VIPS *AGENT_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* Layout and version bits: by what the maps were made. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} meta SEC(".maps");

/* One for each VIP: names outlive the daemon with the counters. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_AGENT_VIPS);
	__type(key, __u32);
	__type(value, struct name);
} names SEC(".maps");

INLINE void count(const struct segment *s, __u32 what)
{
	__u32 at = s->vip.number * AGENT_COUNTS + what;
	__u64 *counted = bpf_map_lookup_elem(&counts, &at);
	if (counted)
		(*counted)++;
}

INLINE int is_ours(struct segment *s, const __u32 *vip, const int words, __be16 port, __u32 family)
{
	struct agent_vip_key key = {.key = port | IPPROTO_TCP << 16 | family << 24};
#pragma unroll
	for (int i = 0; i < words; i++)
		key.address[i] = vip[i];
	struct agent_vip *found = bpf_map_lookup_elem(&vips, &key);
	if (!found)
		return 0;
	s->vip = *found;
	return 1;
}

/* Where the timestamps are among the options; -1: nowhere. */
INLINE int find_option(const struct segment *s, __u32 bytes)
{
	const __u8 *o = s->options;
	if (bytes >= 12 && *(const __u32 *)o == NOP_NOP_TS)
		return 2;
	if (bytes >= 16 && o[0] == 2 && o[1] == 4 && *(const __u32 *)(o + 4) == SACK_TS)
		return 6;
	return walk_options(o, bytes);
}

/* The TCP header at `tcp_at`, once the addresses are known; 0: not a segment to touch. */
INLINE int load_tcp(struct __sk_buff *skb, struct segment *s)
{
	__u32 header = (s->tcp.offset >> 4) * 4;
	if (header <= TCP_BYTES || header > TCP_BYTES + OPTION_BYTES)
		return 0;
	if (bpf_skb_load_bytes(skb, s->tcp_at + TCP_BYTES, s->options, header - TCP_BYTES))
		return 0;
	int at = find_option(s, header - TCP_BYTES);
	if (at < 0)
		return 0;
	s->option_at = at;
	return 1;
}

enum found { FOREIGN_PACKET, NO_OPTION, FOUND };

INLINE enum found load_v4(struct __sk_buff *skb, struct segment *s, const int egress)
{
	struct ipv4 ip;
	if (bpf_skb_load_bytes(skb, ETH_BYTES, &ip, sizeof(ip)))
		return FOREIGN_PACKET;
	__u32 header = (ip.version_ihl & 15) * 4;
	if (ip.protocol != IPPROTO_TCP || header < IPV4_BYTES ||
	    (ip.fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET)))
		return FOREIGN_PACKET;
	s->tcp_at = ETH_BYTES + header;
	if (bpf_skb_load_bytes(skb, s->tcp_at, &s->tcp, sizeof(s->tcp)))
		return FOREIGN_PACKET;
	__u32 vip = egress ? ip.source : ip.destination;
	__u32 client = egress ? ip.destination : ip.source;
	__be16 vip_port = egress ? s->tcp.source : s->tcp.destination;
	__be16 client_port = egress ? s->tcp.destination : s->tcp.source;
	if (!is_ours(s, &vip, 1, vip_port, 4))
		return FOREIGN_PACKET;
	s->flow = (struct flow){.word = {client, vip, client_port | (__u32)vip_port << 16,
					 IPPROTO_TCP | 2 << 8}};
	s->words = 4;
	return load_tcp(skb, s) ? FOUND : NO_OPTION;
}

INLINE enum found load_v6(struct __sk_buff *skb, struct segment *s, const int egress)
{
	struct ipv6 ip;
	if (bpf_skb_load_bytes(skb, ETH_BYTES, &ip, sizeof(ip)) || ip.next != IPPROTO_TCP)
		return FOREIGN_PACKET;
	s->tcp_at = ETH_BYTES + IPV6_BYTES;
	if (bpf_skb_load_bytes(skb, s->tcp_at, &s->tcp, sizeof(s->tcp)))
		return FOREIGN_PACKET;
	const __u32 *vip = egress ? ip.source : ip.destination;
	const __u32 *client = egress ? ip.destination : ip.source;
	__be16 vip_port = egress ? s->tcp.source : s->tcp.destination;
	__be16 client_port = egress ? s->tcp.destination : s->tcp.source;
	if (!is_ours(s, vip, 4, vip_port, 6))
		return FOREIGN_PACKET;
	s->flow = (struct flow){.word = {client[0], client[1], client[2], client[3], vip[0], vip[1],
					 vip[2], vip[3], client_port | (__u32)vip_port << 16,
					 IPPROTO_TCP | 8 << 8}};
	s->words = 10;
	return load_tcp(skb, s) ? FOUND : NO_OPTION;
}

INLINE enum found load(struct __sk_buff *skb, struct segment *s, const int egress)
{
	__be16 type;
	if (bpf_skb_load_bytes(skb, 12, &type, 2))
		return FOREIGN_PACKET;
	if (type == ETH_IPV4)
		return load_v4(skb, s, egress);
	if (type == ETH_IPV6)
		return load_v6(skb, s, egress);
	return FOREIGN_PACKET;
}

INLINE __u64 hash_of(const struct flow_key *key, const struct segment *s)
{
	return s->words == 4 ? flow_hash(key, &s->flow, 4) : flow_hash(key, &s->flow, 10);
}

/* The mask is written out: an epoch that was on the stack has lost its bound to kernels before 6.18. */
INLINE const struct flow_key *salt_of(const struct agent_settings *c, __u32 epoch)
{
	__u64 bounded = epoch;
	asm volatile("%0 &= 1" : "+r"(bounded));
	return &c->salt[bounded];
}

/* Changes the upper half of a timestamp at `field`, counted from the TCP header, and the checksum. */
INLINE void rewrite(struct __sk_buff *skb, const struct segment *s, __u32 field, __be16 old,
		    __u16 host_value)
{
	__be16 new = bpf_htons(host_value), from = old, to = new;
	/* An option may begin at an odd offset; then the sum sees its bytes the other way round. */
	if (field & 1) {
		from = __builtin_bswap16(from);
		to = __builtin_bswap16(to);
	}
	bpf_l4_csum_replace(skb, s->tcp_at + offsetof(struct tcp, checksum), from, to, 2);
	bpf_skb_store_bytes(skb, s->tcp_at + field, &new, 2, 0);
}

/* The clock of Linux's timestamps, to a tick: enough to tell which wrap a stamp belongs to. */
INLINE __u64 stamps_ms(void)
{
	return bpf_ktime_get_coarse_ns() / 1000000;
}

enum { OFFSET_KNOWN, OFFSET_NO_SOCKET, OFFSET_LISTENER };

/* The connection's offset, which the stack adds to the clock in every timestamp. */
INLINE int offset_of_socket(void *sk, __u32 state, __u32 *offset)
{
	struct tcp_request_sock *request = bpf_skc_to_tcp_request_sock(sk);
	if (request) {
		*offset = request->ts_off;
		return OFFSET_KNOWN;
	}
	struct tcp_timewait_sock *timewait = bpf_skc_to_tcp_timewait_sock(sk);
	if (timewait) {
		*offset = timewait->tw_ts_offset;
		return OFFSET_KNOWN;
	}
	if (state == TCP_LISTEN_STATE)
		return OFFSET_LISTENER;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return OFFSET_NO_SOCKET;
	*offset = tcp->tsoffset;
	return OFFSET_KNOWN;
}

/* The socket that a client's segment is for. */
INLINE int offset_by_tuple(struct __sk_buff *skb, const struct segment *s, __u32 *offset)
{
	struct bpf_sock_tuple tuple = {};
	__u32 bytes = sizeof(tuple.ipv4);
	const __u32 *w = s->flow.word;
	*offset = 0;
	if (s->words == 4) {
		tuple.ipv4.saddr = w[0];
		tuple.ipv4.daddr = w[1];
		tuple.ipv4.sport = w[2];
		tuple.ipv4.dport = w[2] >> 16;
	} else {
		bytes = sizeof(tuple.ipv6);
		__builtin_memcpy(tuple.ipv6.saddr, w, 16);
		__builtin_memcpy(tuple.ipv6.daddr, w + 4, 16);
		tuple.ipv6.sport = w[8];
		tuple.ipv6.dport = w[8] >> 16;
	}
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, &tuple, bytes, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return OFFSET_NO_SOCKET;
	int found = offset_of_socket(sk, sk->state, offset);
	bpf_sk_release(sk);
	return found;
}

/* The salt of the cookie in a segment stamped `real`. Only for some minutes after a change of salts must
 * the socket be asked: the change comes at a boundary of the connection's own timestamps. */
INLINE __u32 epoch_of_reply(struct __sk_buff *skb, const struct segment *s,
			    const struct agent_settings *c, __u32 real)
{
	__u64 now = stamps_ms();
	__s64 switch_epoch = c->switch_epoch;
	__u32 offset = 0;
	/* Unsigned: not before the change, which may be hours away. */
	if (now - (__u64)(switch_epoch >> 1) < SETTLED_MS) {
		struct bpf_sock *sk = skb->sk;
		int found = sk ? offset_of_socket(sk, sk->state, &offset)
			       : offset_by_tuple(skb, s, &offset);
		if (found != OFFSET_KNOWN)
			offset = real - (__u32)now;
	}
	return epoch_now(switch_epoch, real >> 16, offset, now);
}

SEC("classifier") int agent_egress(struct __sk_buff *skb)
{
	struct segment s = {};
	__u32 zero = 0;
	enum found found = load(skb, &s, 1);
	if (found == FOREIGN_PACKET)
		return NEXT;
	if (found == NO_OPTION) {
		count(&s, AGENT_NO_TIMESTAMP);
		return NEXT;
	}
	struct agent_settings *c = bpf_map_lookup_elem(&settings, &zero);
	if (!c || s.option_at > OPTION_BYTES - TIMESTAMPS_BYTES)
		return NEXT;
	__be16 upper, lower;
	__builtin_memcpy(&upper, s.options + s.option_at + 2, 2);
	__builtin_memcpy(&lower, s.options + s.option_at + 4, 2);
	__u32 real = (__u32)bpf_ntohs(upper) << 16 | bpf_ntohs(lower);
	__u32 epoch = epoch_of_reply(skb, &s, c, real) & 1;
	struct permutation *perm = bpf_map_lookup_elem(&permutations, &epoch);
	if (!perm || !(c->salts & (1 << epoch)))
		return NEXT;
	__u64 hash = hash_of(salt_of(c, epoch), &s);
	rewrite(skb, &s, TCP_BYTES + s.option_at + 2, upper,
		hide(perm, hash, s.vip.id, epoch, real >> 16));
	count(&s, AGENT_WRITTEN);
	return NEXT;
}

/* Whether an echo's cookie is one that this server wrote into this connection. */
INLINE int wrote(const struct agent_settings *c, const struct segment *s, __u16 upper)
{
	__u32 epoch = epoch_of(upper) & 1;
	struct permutation *perm = bpf_map_lookup_elem(&permutations, &epoch);
	if (!perm || !(c->salts & (1 << epoch)))
		return 0;
	return reveal(perm, hash_of(salt_of(c, epoch), s), upper) == s->vip.id;
}

SEC("classifier") int agent_ingress(struct __sk_buff *skb)
{
	struct segment s = {};
	__u32 zero = 0, offset;
	enum found found = load(skb, &s, 0);
	if (found == FOREIGN_PACKET || (s.tcp.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return NEXT;
	if (found == NO_OPTION) {
		count(&s, AGENT_NO_TIMESTAMP);
		return NEXT;
	}
	struct agent_settings *c = bpf_map_lookup_elem(&settings, &zero);
	if (!c || s.option_at > OPTION_BYTES - TIMESTAMPS_BYTES)
		return NEXT;
	__be16 upper, lower;
	__builtin_memcpy(&upper, s.options + s.option_at + 6, 2);
	__builtin_memcpy(&lower, s.options + s.option_at + 8, 2);
	if (!upper && !lower)
		return NEXT; /* no echo (RFC 7323, 3.2) */
	if (!wrote(c, &s, bpf_ntohs(upper))) {
		count(&s, AGENT_FOREIGN);
		return NEXT;
	}
	int known = offset_by_tuple(skb, &s, &offset);
	if (known == OFFSET_LISTENER) {
		/* A SYN cookie is all in the lower half, and no socket minds the upper one. */
		count(&s, AGENT_SYN_COOKIE);
		return NEXT;
	}
	if (known == OFFSET_NO_SOCKET)
		count(&s, AGENT_NO_SOCKET);
	rewrite(skb, &s, TCP_BYTES + s.option_at + 6, upper,
		restore(bpf_ntohs(upper), bpf_ntohs(lower), offset, stamps_ms()));
	count(&s, AGENT_RESTORED);
	return NEXT;
}

/* The kernel lends its sockets only to programs that are free under the GPL, too. */
char free_under[] SEC("license") = "Dual MIT/GPL";
