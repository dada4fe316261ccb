/* How packets travel between forwarder and nodes: VXLAN (RFC 7348) over IPv4, whose inner Ethernet header
 * carries the ids. Its source address is locally administered, so that other VXLAN equipment passes it on
 * unread. A packet whose addresses a function rewrote comes back with the key of its flow in front. Mirrored
 * in src/wire.rs. */
#pragma once
#include "headers.h"

#define VXLAN_PORT bpf_htons(4789)
#define VXLAN_FLAGS bpf_htonl(0x08000000)
#define UDP_BYTES 8
/* Ethernet, IPv4, UDP, VXLAN. */
#define OUTER_BYTES (ETH_BYTES + IPV4_BYTES + UDP_BYTES + 8)
/* And the Ethernet header within. */
#define WRAP_BYTES (OUTER_BYTES + ETH_BYTES)
/* The local experimental EtherType (IEEE 802): `struct teach` follows. */
#define ETH_TEACH bpf_htons(0x88b5)

#define IDS_FIRST 0x02
#define IDS_LAST 0x50

/* Flags of a packet, in the inner source address. */
#define FLAG_UPDATE 1 /* rewritten: the key that it came in by is in front */
#define FLAG_REPLY 2  /* against the direction of the flow's first packet */
#define FLAG_RETURN 4 /* not rewritten, but the node's way to the destination leads by the forwarder */

struct udp {
	__be16 source, destination, length;
	__sum16 checksum;
};

struct vxlan {
	__u32 flags;
	__u32 vni; /* in the upper three bytes */
};

/* The inner source address. */
struct ids {
	__u8 first; /* IDS_FIRST */
	__u8 flags;
	__u8 server, core, service;
	__u8 last; /* IDS_LAST */
};

struct wrap {
	struct ethernet eth;
	struct ipv4 ip;
	struct udp udp;
	struct vxlan vxlan;
	struct ethernet inner;
} __attribute__((packed));

_Static_assert(sizeof(struct wrap) == 64 && WRAP_BYTES == 64, "copied as eight words");

/* A flow's key, the same for both directions: the lower end first. Ports: the lower end's in the first two
 * bytes; an echo's id stands for both. */
struct key4 {
	__u32 low, high;
	__u32 ports;
	__u32 protocol;
};

struct key6 {
	__u32 low[4], high[4];
	__u32 ports;
	__u32 protocol;
};

/* In front of a rewritten packet, behind the inner Ethernet header; `words` of the key. */
struct teach {
	__be16 type; /* of what follows: ETH_IPV4, ETH_IPV6 */
	__be16 pad;
};

#define TEACH4_BYTES (sizeof(struct teach) + sizeof(struct key4))
#define TEACH6_BYTES (sizeof(struct teach) + sizeof(struct key6))

/* Of an inner Ethernet header. */
INLINE struct ids *ids_of(const void *inner)
{
	return (struct ids *)((struct ethernet *)inner)->from;
}

INLINE int are_ids(const struct ids *ids)
{
	return ids->first == IDS_FIRST && ids->last == IDS_LAST;
}

/* The checksum of a whole IPv4 header without options. */
INLINE __sum16 header_checksum(const struct ipv4 *ip)
{
	__u64 sum = 0;
	const __u32 *word = (const void *)ip;
#pragma unroll
	for (int i = 0; i < 5; i++)
		sum += word[i];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}
