/* A reader of the balancer's tables that takes its time, as on a CPU that the hypervisor has taken away: it looks at
 * one VIP of the half that was in force when it began, again and again for a third of a second. */
#include "../maps.h"

#define LONG_NS 300000000ULL
#define LOOKS (1 << 23)

struct told {
	__u32 began;
	__u32 looked;
	__u32 lost; /* the half was written meanwhile */
};

MAP(told, BPF_MAP_TYPE_ARRAY, 1, struct told);

struct look {
	struct told *told;
	__u64 until;
	__u32 at;
};

static long look_again(__u32 turn, struct look *look)
{
	__u32 at = look->at;
	struct vip *vip = bpf_map_lookup_elem(&vips, &at);
	look->told->looked = turn + 1;
	if (!vip || !*(volatile __u32 *)&vip->key) {
		look->told->lost = 1;
		return 1;
	}
	return bpf_ktime_get_ns() > look->until;
}

SEC("xdp") int slow_reader(struct xdp_md *ctx)
{
	(void)ctx;
	__u32 zero = 0, begin;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	struct told *told_now = bpf_map_lookup_elem(&told, &zero);
	if (!c || !told_now)
		return XDP_ABORTED;
	begin = (c->vip_half & 1) << vip_bits;
	for (__u32 n = 0; n < 1u << vip_bits; n++) {
		__u32 at = begin + n;
		struct vip *vip = bpf_map_lookup_elem(&vips, &at);
		if (!vip || !vip->key)
			continue;
		struct look look = {.told = told_now, .until = bpf_ktime_get_ns() + LONG_NS, .at = at};
		told_now->began = 1;
		bpf_loop(LOOKS, look_again, &look, 0);
		return XDP_PASS;
	}
	return XDP_ABORTED;
}

char free_under[] SEC("license") = "Dual MIT/GPL";
