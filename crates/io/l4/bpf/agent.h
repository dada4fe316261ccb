/* What user space and the agent's programs share, and how they read a packet. Mirrored field by field
 * in src/agent/layout.rs; AGENT_LAYOUT changes with every change here. */
#pragma once
#include "packet.h"

#define AGENT_LAYOUT 1
#define MAX_AGENT_VIPS 256

/* One entry. */
struct agent_settings {
	/* The salt of cookies written now in the lowest bit, and above it when that took over, by the
	 * clock of the server's timestamps: one word, so that no packet sees half a change. */
	__u64 switch_epoch;
	__u8 salts; /* bit e: there is a salt for epoch e */
	__u8 pad[7];
	struct flow_key salt[2];
};

struct agent_vip_key {
	__u32 address[4]; /* as in the packet; IPv4 in the first word */
	__u32 key;        /* as `struct vip` has it */
};

struct agent_vip {
	__u32 number; /* of its counters */
	__u32 id;     /* this server's in cookies */
};

/* Counted for each VIP. Names as in `plimsoll l4 agent status`: src/agent/status.rs. */
enum agent_count {
	AGENT_WRITTEN,      /* cookies written into TSval */
	AGENT_RESTORED,     /* echoes restored in TSecr */
	AGENT_NO_TIMESTAMP, /* left alone: a segment without the option */
	AGENT_FOREIGN,      /* left alone: the echo's cookie is not this server's */
	AGENT_NO_SOCKET,    /* restored as of a connection without an offset: no socket is known */
	AGENT_SYN_COOKIE,   /* left alone: the listener keeps nothing of the connection */
	AGENT_COUNTS
};

/* A TCP segment of a VIP, copied out of the packet: frames may lie in pieces. */
struct segment {
	struct flow flow; /* client first */
	__u32 words;      /* of `flow` */
	__u32 tcp_at;
	struct agent_vip vip;
	struct tcp tcp;
	__u8 options[OPTION_BYTES] __attribute__((aligned(8)));
	__u32 option_at; /* of the timestamps, among `options` */
};
