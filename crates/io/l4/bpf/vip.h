/* The service at an address and port. */
#pragma once
#include "maps.h"
#include "packet.h"

INLINE __u32 vip_key(__be16 port, __u32 protocol, __u32 family)
{
	return port | protocol << 16 | family << 24;
}

/* Whether a VIP may have this port: what has not is no VIP's, and the look-up is saved for it. */
INLINE int port_in_use(const struct vip_index *index, __be16 port)
{
	return index->ports >> ((port * 0x9e3779b1U) >> 26) & 1;
}

/* User space chooses the seeds so that no two VIPs share a place: one look, one compare. */
INLINE struct vip *find_vip(const struct config *c, const __u32 *address, __be16 port,
			    const int family)
{
	__u32 half = c->vip_half & 1, bits = vip_bits, key = vip_key(port, IPPROTO_TCP, family);
	const struct vip_index *index = &c->index[half];
	__u64 sum;
	if (!port_in_use(index, port))
		return NULL;
	if (family == 4)
		sum = ((__u64)key << 32 | address[0]) * index->seed[0];
	else
		sum = key * index->seed[0] + load64(address) * index->seed[1] +
		      load64(address + 2) * index->seed[2];
	__u32 at = sum >> (64 - bits) | half << bits;
	struct vip *vip = bpf_map_lookup_elem(&vips, &at);
	if (!vip || vip->key != key)
		return NULL;
	if (family == 4)
		return vip->address[0] == address[0] ? vip : NULL;
	return load64(vip->address) == load64(address) && load64(vip->address + 2) == load64(address + 2) ? vip
											   : NULL;
}
