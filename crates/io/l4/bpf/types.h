/* What user space and the program share: map values, counters, constants. Mirrored field by field in
 * src/layout.rs, and held against each other by tests; META_LAYOUT changes with every change that pinned maps of before
 * do not bear (one more map is made where it is missing), so that a new daemon knows them when it sees them, and moves
 * what they hold to new ones (src/carry.rs). */
#pragma once
#include <linux/types.h>

#define META_LAYOUT 10

/* Places in the list a SYN is served from; the size of one half of a `slots` entry. */
#define MAX_SLOTS 8192
/* Interfaces a packet can leave by. */
#define MAX_PORTS 64
/* What comes by it goes back by XDP_TX. */
#define PORT_TURNS_BACK 1
/* Not configured any more, or without the program: no client's route leads by it. */
#define PORT_SHUT 2
/* The widest permutation (1 version bit). */
#define MAX_IDS 16384
#define MAC_WAYS 6
#define NAME_BYTES 64
/* Prefixes of a way for which the kernel's routes are asked. */
#define MAX_ASKED 8
/* log2 of the connections whose last SYN, FIN or RST is remembered: see counting.h. */
#define LAST_BITS 16
/* So many in a row, for reading them all. */
#define LAST_ROW 512
/* log2 of the connections whose server is kept for their RSTs: see owner.h. */
#define OWNER_BITS 14

/* A keyed hash of a connection; `FlowHash` of crates/logic/cookie. */
struct flow_key {
	__u32 word[10];
	__u64 multiplier;
};

/* Sizes that are powers of two make places in tables by shifts. */
struct salt {
	struct flow_key key;
	__u64 pad[2];
};

/* Destinations for which a way does not hold, as in the packet: an IPv4 address in the low half, the upper
 * half of an IPv6 one. */
struct asked {
	__u64 prefix;
	__u64 mask;
};

/* Where replies of one family go: the operator's next hop, or that of the kernel's default route. */
struct way {
	__u64 until_ms; /* by now_ms(): from then on the kernel's routes are asked; 0: always */
	__u8 mac[6];
	__u8 source_mac[6];
	__u32 port; /* index into `ports` */
	__u32 ifindex;
	__u32 mtu; /* longer packets are the kernel's routes' */
	__u32 asked_count;
	__u8 hairpin_tx; /* back out of the interface it came in by: XDP_TX rather than redirect */
	/* From here on but for `asked` not for the program: what `l4 status` tells. */
	__u8 by;
	__u8 why;
	__u8 pad;
	struct asked asked[MAX_ASKED];
	__u8 gateway[16];
	char interface[16];
	__u64 renewed_ms; /* by CLOCK_MONOTONIC */
	/* For the program again: see hops.h. */
	__u64 hops_until_ms; /* by now_ms(): from then on nothing is remembered; 0: never */
	__u64 generation;    /* what was remembered under another one is forgotten */
	__u8 pad_end[32];
};

_Static_assert(sizeof(struct way) == 256, "a power of two");

/* Where the kernel's routes lead for one destination, as they last said. */
struct hop {
	__u64 tag; /* generation << 8 | family (4, 6); 0: nothing */
	__u32 client[4];
	__u8 mac[6];
	__u8 source_mac[6];
	__u32 port;
	__u32 mtu;
	__u8 pad[20];
};

_Static_assert(sizeof(struct hop) == 64, "a line of the cache");

/* How a half of `vips` is read. */
struct vip_index {
	__u64 seed[3];
	__u64 ports; /* bits of the ports in use: see port_in_use() */
};

/* One entry. Tables come in halves: user space fills the one that is not read, then flips one byte. Before it fills
 * that one again it waits until every run of the program that may have read the byte before has ended. */
struct config {
	struct vip_index index[2];
	__u64 mac_seed[2];
	/* When the salt of cookies written now took over, by now_ms(), and its epoch in the lowest bit: one word,
	 * so that no packet goes by the one before and the other after a rotation. */
	__u64 switch_epoch;
	__u8 vip_half;
	__u8 mac_half;
	__u8 salts; /* bit e: there is a salt for epoch e */
	__u8 pad[5];
	struct salt salt[2];
	struct flow_key spread;
	__u8 pad_ways[48];
	struct way ways[2]; /* IPv4, IPv6 */
	__u8 pad_end[192];
};

_Static_assert(sizeof(struct config) == 1024, "a power of two");

/* One for each epoch: the permutation and its inverse. */
struct permutation {
	__u16 forward[MAX_IDS];
	__u16 inverse[MAX_IDS];
};

enum policy {
	POLICY_ROTATE = 0, /* the list in order */
	POLICY_TWO = 1,    /* the less loaded of two places of the list */
	POLICY_LEAST = 2,  /* the least loaded of up to LEAST_SCAN places */
	POLICY_HASH = 3,   /* the connection's place in the list */
};

struct vip {
	__u32 address[4]; /* as in the packet; IPv4 in the first word */
	__u32 key;        /* port as in the packet | protocol << 16 | family (4, 6) << 24; 0: free */
	__u32 number;
	__u32 base; /* of its members */
	__u8 policy;
	__u8 slot_half;
	__u8 pad[2];
	/* What an IPv6 address adds to a connection's hash: by either salt, and by config.spread. */
	__u64 part[3];
	__u8 pad_end[8];
};

#define BY_SPREAD 2

/* Which servers take SYNs: `policy` by the policy, `spread` by hash for what has no cookie. */
struct slots {
	__u32 policy_length;
	__u32 spread_length;
	__u16 policy[MAX_SLOTS];
	__u16 spread[MAX_SLOTS];
	__u32 cost[MAX_SLOTS]; /* of a connection at that place of `policy`: see fill.rs */
};

enum member_state {
	MEMBER_UNUSED = 0,
	MEMBER_LIVE = 1, /* serves its connections, whether or not it takes new ones */
	MEMBER_GONE = 2, /* its cookies are stale, its connections are reset */
	MEMBER_LOST = 3, /* keeps its connections, but no interface leads to it, or its MAC address is not known yet */
};

#define MEMBER_HAIRPIN_TX 1
#define MEMBER_AGENT 2 /* its own agent writes and restores timestamps */

struct member {
	__u8 mac[6];
	__u8 source_mac[6];
	__u32 port;
	__u32 ifindex;
	__u8 state;
	__u8 flags;
	__u16 weight;
	__u8 pad[40];
};

/* A server's clock, by its place in `members`: the program's to write. User space sets it to 0 where a place gets
 * another server, which no machine hears yet. */
struct clock {
	__u32 offset_ms; /* the server's less now_ms() */
	__u32 heard;
};

/* Of an id in a bucket: the server has an agent. Ids are below MAX_IDS. */
#define SOURCE_AGENT 0x8000

/* Servers by source address: key = MAC << 16 | VIP's number + 1; 0: free. */
struct mac_bucket {
	__u64 key[MAC_WAYS];
	__u16 id[MAC_WAYS]; /* with SOURCE_AGENT */
	__u8 pad[4];
};

/* One for each CPU and member. */
struct member_count {
	__u64 packets_in; /* from clients */
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
	__u64 opened; /* SYNs */
	__u64 closed;
	__u64 clock_moved;
	__u64 unanswered; /* of `opened` and `closed`: the server's SYN-ACK was not answered */
};

/* Why a packet did not take the fast path. Counted for each VIP; those without one in a row of their
 * own. Names as in `plimsoll l4 status`: src/reason.rs. */
enum reason {
	REASON_NO_TIMESTAMP,      /* by the hash fallback: later packet without a timestamp */
	REASON_SYN_NO_TIMESTAMP,  /* by the hash fallback: its connection will have none */
	REASON_FOREIGN,           /* by the hash fallback: the cookie is no server's */
	REASON_STALE,             /* reset: the cookie's server is gone */
	REASON_CLOCK_UNKNOWN,     /* forwarded with TSecr 0: the server was not heard yet */
	REASON_REPLY_NO_TIMESTAMP, /* forwarded as it is: no place for a cookie */
	REASON_NO_SERVER,         /* dropped: no server takes connections */
	REASON_UNKNOWN_SOURCE,    /* dropped: from the VIP, but from no server of it */
	REASON_NO_ROUTE,          /* to the kernel: no route or neighbour for the client, or by no configured interface */
	REASON_SLOW_OPTIONS,      /* the options took the slow path; nothing else is wrong */
	REASON_FRAGMENT,          /* a later fragment that found its first */
	REASON_FRAGMENT_LOST,     /* a later fragment whose first was not seen: as with the malformed */
	REASON_ICMP,              /* an error that quotes enough: to its server */
	REASON_ICMP_SPREAD,       /* an error that quotes too little: spread by hash */
	REASON_MALFORMED,         /* headers that contradict themselves: to the kernel; dropped if to a VIP's address */
	REASON_VLAN,              /* to the kernel: tagged */
	REASON_TTL,               /* to the kernel: a reply whose hop limit is used up */
	REASON_NO_PORT,           /* dropped: no interface leads to the connection's server */
	REASON_NO_SERVICE,        /* dropped: to a VIP's address, but to no service */
	REASON_ECHO,              /* answered: a ping of a VIP's address */
	REASON_ROUTE_ASKED,       /* a reply whose way the kernel's routes were asked for */
	REASON_CLOCK_MOVED,       /* a reply whose server's clock is not where it was */
	REASONS
};

/* An address as in the packet; IPv4 in the first word. */
struct address_key {
	__u32 address[4];
	__u32 family; /* 4, 6 */
};

/* What connections did last: see counting.h. */
struct last {
	__u64 event[LAST_ROW];
};

struct fragment_key {
	__u32 client[4];
	__u32 vip[4];
	__u32 id;
	__u32 protocol;
};

/* One entry, never read by the program: what the maps were made by. */
struct meta {
	__u32 layout;
	__u32 version_bits;
	__u32 vips;
	__u32 stride;
};

/* One for each VIP and member: names outlive the daemon with the counters. */
struct name {
	char text[NAME_BYTES];
};

/* Never read by the program: what set weights, and the load that servers reported. One for each place of
 * `members`; that of id 0, which is no server, is the VIP's. */
struct note {
	__u64 epoch;   /* VIP: of the plan in force; server that drains: when it is forgotten, CLOCK_BOOTTIME ms */
	__u64 unix_ms; /* VIP: when the weights were set; server: when it reported its load */
	__u64 failures; /* server: how often it did not tell */
	__u32 load_ppm;
	__u16 weight;
	__u16 share; /* server: its part of what has no cookie */
	__u8 set_by; /* VIP: 0 the configuration, 1 a controller, 2 load */
	__u8 flags;  /* server */
	char who[30]; /* VIP: the controller's name for itself; server: src/notes.rs */
};

#define NOTE_WEIGHT 1 /* `weight` stands instead of the configured one */
#define NOTE_LOAD 2   /* `load_ppm` is known */
