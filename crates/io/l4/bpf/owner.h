/* Which server a RST without a cookie belongs to. Linux answers what comes for no socket by a RST without
 * timestamps (its client has closed, or was switched off, while the server pushes), and only the connection's
 * own server takes that. It is found in
 *
 *   last     by the SYN, while that is remembered
 *   owners   by the client's FIN; or a RST whose server is not known is entered here, the next segment of that
 *            connection (the server sends again what is not acknowledged) tells the server, and the RST that
 *            answers it arrives.
 *
 * Replies are looked up only for a moment after such a RST: of all others nothing is kept. */
#pragma once
#include "counting.h"

/* Replies are looked up for so long after a RST: the first retransmissions come within a second. */
#define ASK_MS 2000
/* Less than this is left when the time is written anew: not with each of many RSTs. */
#define ASK_AGAIN_MS (ASK_MS / 2)
/* VIPs whose numbers end alike share an entry: replies of both are looked up then. */
#define ASKING 64

/* By now_ms(): until then the replies of a VIP are looked up. The program's own: a new one begins with zeros. */
__u64 asks_until_ms[ASKING];

INLINE __u64 *asks_of(const struct vip *vip)
{
	return &asks_until_ms[vip->number & (ASKING - 1)];
}

/* An entry: the end of the connection's hash, and its member; 0 while that is not known. */
#define OWNER_AT(entry) ((__u32)(entry))

INLINE __u64 *owner_of(__u64 hash)
{
	__u32 at = hash >> (64 - OWNER_BITS);
	return bpf_map_lookup_elem(&owners, &at);
}

INLINE __u64 owned_by(__u64 hash, __u32 at)
{
	return hash << 32 | at;
}

INLINE int is_of(__u64 entry, __u64 hash)
{
	return entry >> 32 == (__u32)hash;
}

/* The member of a connection; 0: not known. Place 0 is no server's: ids begin with 1. */
INLINE __u32 find_owner(__u64 hash)
{
	__u64 *event = last_of(hash);
	if (event && is_event_of(*event, hash))
		return LAST_AT(*event);
	__u64 *entry = owner_of(hash);
	return entry && is_of(*entry, hash) ? OWNER_AT(*entry) : 0;
}

/* A client ends its connection, with a valid cookie: RSTs without one may follow. */
INLINE void note_owner(__u64 hash, __u32 at)
{
	__u64 *event = last_of(hash), *entry = owner_of(hash);
	if (!dry_run && entry && event && !is_event_of(*event, hash))
		*entry = owned_by(hash, at);
}

/* Has replies looked up for the connection's server, even if an entry names one: that may be of an earlier
 * connection between the same ends. */
INLINE void ask_owner(const struct vip *vip, __u64 hash)
{
	__u64 *event = last_of(hash), *entry = owner_of(hash), now = now_ms(), *until = asks_of(vip);
	if (dry_run || !entry || (event && is_event_of(*event, hash)))
		return;
	if (!is_of(*entry, hash))
		*entry = owned_by(hash, 0);
	if (*until < now + ASK_AGAIN_MS)
		*until = now + ASK_MS;
}

/* A server's segment, while replies are looked up. */
static __noinline void tell_owner(__u64 hash, __u32 at)
{
	__u64 *entry = owner_of(hash);
	if (!dry_run && entry && is_of(*entry, hash))
		*entry = owned_by(hash, at);
}
