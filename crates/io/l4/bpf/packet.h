/* Reading and changing headers. Offsets are checked against the packet's end before every access; a
 * packet that contradicts itself is the kernel's. */
#pragma once
#include "cookie.h"
#include "headers.h"

/* With NOP NOP TS. */
#define STRAIGHT_TCP_BYTES 32

struct timestamps {
	__u8 kind;
	__u8 length;
	__be16 value_upper;
	__be16 value_lower;
	__be16 echo_upper;
	__be16 echo_lower;
};

INLINE void set_field(struct tcp *tcp, __be16 *field, __u16 host_value)
{
	__u16 old = *field, new = bpf_htons(host_value);
	*field = new;
	/* An option may begin at an odd offset; then the sum sees its bytes the other way round. */
	if (((long)field - (long)tcp) & 1) {
		old = __builtin_bswap16(old);
		new = __builtin_bswap16(new);
	}
	fix_checksum(&tcp->checksum, old, new);
}

#define NOP_NOP_TS bpf_htonl(0x0101080a)
#define SACK_TS bpf_htonl(0x0402080a)
#define MSS bpf_htons(0x0204)
#define NOP_WS bpf_htonl(0x01030300)
#define WS_MASK bpf_htonl(0xffffff00)
#define OPTION_BYTES 40

/* Walks the options; the timestamp's offset among them, or -1. */
INLINE int walk_options(const __u8 *options, __u32 bytes)
{
	__u32 at = 0;
	for (int i = 0; i < OPTION_BYTES; i++) {
		/* Opaque to the compiler, which would compare a sum and then use its part: kernels before
		 * 6.18 do not see the bounds of that. */
		__u64 place = at;
		asm volatile("" : "+r"(place));
		if (place > OPTION_BYTES - 2 || at + 1 >= bytes)
			return -1;
		__u8 kind = options[place], length = options[place + 1];
		if (kind == 1) {
			at++;
			continue;
		}
		if (kind == 0 || length < 2)
			return -1;
		if (kind == 8)
			return length == 10 && at + 10 <= bytes ? (int)at : -1;
		at += length;
	}
	return -1;
}

/* Where the timestamp option is, from the start of the TCP header, in a layout that no compare knows;
 * 0: there is none, or the options contradict themselves. */
GLOBAL __u32 other_options(struct xdp_md *ctx, __u32 tcp_offset, __u32 header)
{
	__u8 options[OPTION_BYTES] __attribute__((aligned(8))) = {};
	__u64 last = header - TCP_BYTES - 1, bytes;
	if (last >= OPTION_BYTES)
		return 0;
	/* As in walk_options(). */
	asm volatile("" : "+r"(last));
	bytes = last + 1;
	if (bpf_xdp_load_bytes(ctx, tcp_offset + TCP_BYTES, options, bytes))
		return 0;
	int at = walk_options(options, bytes);
	return at < 0 ? 0 : TCP_BYTES + at;
}

/* The timestamp option. Every segment but those of a handshake, and those with selective
 * acknowledgments too, begin NOP NOP TS: one compare. Three more layouts are a few, as in Cheetah's
 * table 1: MSS SACK TS (Linux, SYN); MSS NOP NOP TS; MSS NOP WS NOP NOP TS (macOS, iOS, SYN). Where
 * returns are guarded (Safe RET), a call costs more than all of them, so they are made here. */
INLINE struct timestamps *find_timestamps(struct xdp_md *ctx, struct tcp *tcp, void *end,
					  __u32 tcp_offset, int *slow)
{
	__u32 header = (tcp->offset >> 4) * 4;
	__u8 *t = (__u8 *)tcp;
	*slow = 0;
	if (LIKELY(header >= 32 && (void *)(t + 32) <= end && *(__u32 *)(t + 20) == NOP_NOP_TS))
		return (struct timestamps *)(t + 22);
	if (header >= 36 && (void *)(t + 36) <= end && *(__be16 *)(t + 20) == MSS) {
		__u32 second = *(__u32 *)(t + 24);
		if (second == SACK_TS || second == NOP_NOP_TS)
			return (struct timestamps *)(t + 26);
		if (header >= 40 && (void *)(t + 40) <= end && (second & WS_MASK) == NOP_WS &&
		    *(__u32 *)(t + 28) == NOP_NOP_TS)
			return (struct timestamps *)(t + 30);
	}
	if (header <= TCP_BYTES)
		return NULL;
	*slow = 1;
	__u64 at = other_options(ctx, tcp_offset, header) & 63;
	if (at < TCP_BYTES)
		return NULL;
	struct timestamps *option = (void *)(t + at);
	return (void *)(option + 1) <= end ? option : NULL;
}
