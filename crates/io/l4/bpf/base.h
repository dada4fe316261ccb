/* What every program is written with, and its clock. */
#pragma once
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Set by the loader before the program is verified, so that it is a constant to the verifier. */
volatile const __u64 tick_ms_q20 = 4 << 20; /* milliseconds a jiffy, 20 binary places */

#define INLINE static __always_inline
/* Verified once by itself, not along every path that calls it: what keeps the verifier's work small. */
#define GLOBAL __attribute__((noinline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The programs' clock. jiffies are a single load; a server's clock need only be known to seconds. */
INLINE __u64 now_ms(void)
{
	return (bpf_jiffies64() * tick_ms_q20) >> 20;
}
