/* Headers as they lie in packets, and their checksums. */
#pragma once
#include <linux/bpf.h>
#include <linux/in.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "base.h"

#define ETH_BYTES 14
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define TCP_BYTES 20

#define ETH_IPV4 bpf_htons(0x0800)
#define ETH_IPV6 bpf_htons(0x86dd)

/* linux/in6.h clashes with what linux/bpf.h needs. */
#define NEXT_FRAGMENT 44
#define NEXT_ICMPV6 58

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

struct ethernet {
	__u8 to[6];
	__u8 from[6];
	__be16 type;
};

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 fragment; /* flags and offset */
	__u8 ttl;
	__u8 protocol;
	__sum16 checksum;
	__u32 source;
	__u32 destination;
};

struct ipv6 {
	__u32 version_class_flow;
	__be16 length;
	__u8 next;
	__u8 hop_limit;
	__u32 source[4];
	__u32 destination[4];
};

struct tcp {
	__be16 source;
	__be16 destination;
	__u32 sequence;
	__u32 acknowledgment;
	__u8 offset; /* upper four bits: words of header */
	__u8 flags;
	__be16 window;
	__sum16 checksum;
	__be16 urgent;
};

#define MORE_FRAGMENTS bpf_htons(0x2000)
#define FRAGMENT_OFFSET bpf_htons(0x1fff)

/* Fields at once. By way of `void *`: the compiler takes a wide access to a struct's field to pieces, for it
 * knows that such a field may lie at an odd place; the machine does not mind. */
INLINE __u32 load32(const void *at)
{
	return *(const __u32 *)at;
}

INLINE __u64 load64(const void *at)
{
	return *(const __u64 *)at;
}

INLINE void store32(void *at, __u32 value)
{
	*(__u32 *)at = value;
}

INLINE void store64(void *at, __u64 value)
{
	*(__u64 *)at = value;
}

/* No fragment, and TCP: one look at flags, offset, hops and protocol. */
INLINE int is_whole_tcp(const struct ipv4 *ip)
{
	return (load32(&ip->fragment) & bpf_htonl(0x3fff00ff)) == bpf_htonl(IPPROTO_TCP);
}

/* RFC 1624, equation 3. */
INLINE void fix_checksum(__sum16 *check, __u16 old, __u16 new)
{
	__u32 sum = (__u16)~*check + (__u16)~old + new;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*check = ~sum;
}
