#include "engine/lane/lane_split.h"

#include <string.h>

/* Until they are measured: a link of PCIe 4.0, memory with two channels. */
#define USUAL_LINK_BYTES_PER_S 20e9
#define USUAL_CPU_BYTES_PER_S  40e9
/* The least time that it takes to start a copy, and to wake the CPU's threads. */
#define LINK_START_NS 10000.0
#define CPU_START_NS  10000.0
/* A measurement's weight falls by this factor with each later one, so about fifty count. */
#define DECAY 0.98
/* The same of one that is twice as fast as was expected. */
#define FORGET 0.02
/* After this many layers in a row in which the CPU ended last, it gets less, to learn how soon the
 * copies end. */
#define TRY_LESS 16u
/* Layers from one exact time of the copies to the next. */
#define TIME_AGAIN 32u
/* The weight of an exact time against earlier ones. */
#define TIME_WEIGHT 0.25
/* A share of the CPU must save so much of the time, and what it costs besides what is measured:
 * results go up, and only then the next layer is enqueued. */
#define GAIN         0.97
#define LANE_COST_NS 15000.0
/* Layers without the CPU until it is tried again. */
#define TRY_AGAIN 512u
/* ... and this many layers before that the threads are woken, which may take milliseconds. */
#define WAKE_BEFORE 32u
/* Of the layers in which a time is wanted, one in so many finds the link clear. */
#define CLEAR_EVERY 8u

void sl_lane_split_init(struct sl_lane_split *s, double link_bytes_per_s, double cpu_bytes_per_s) {
    memset(s, 0, sizeof *s);
    s->link_byte_ns = 1e9 / (link_bytes_per_s > 0 ? link_bytes_per_s : USUAL_LINK_BYTES_PER_S);
    /* As if an expert of 1 MiB had been measured. */
    double rate = cpu_bytes_per_s > 0 ? cpu_bytes_per_s : USUAL_CPU_BYTES_PER_S;
    sl_lane_split_computed(s, 1 << 20, (uint64_t)(CPU_START_NS + (1 << 20) * 1e9 / rate));
}

void sl_lane_split_force(struct sl_lane_split *s, uint32_t percent) {
    s->forced = true;
    s->percent = percent;
}

/* ---- what was measured ---- */

void sl_lane_split_computed(struct sl_lane_split *s, uint64_t bytes, uint64_t ns) {
    double x = (double)bytes, y = (double)ns, expected = sl_lane_split_cpu_ns(s, bytes);
    if (s->weight > 0 && y > 4 * expected)
        y = 4 * expected;                            /* somebody else had the CPU, or it slept */
    double keep = y < expected / 2 ? FORGET : DECAY; /* somebody gave it back */
    s->weight = s->weight * keep + 1;
    s->x = s->x * keep + x;
    s->y = s->y * keep + y;
    s->xx = s->xx * keep + x * x;
    s->xy = s->xy * keep + x * y;
}

double sl_lane_split_cpu_ns(const struct sl_lane_split *s, uint64_t bytes) {
    if (!(s->weight > 0))
        return 0;
    double x = s->x / s->weight, y = s->y / s->weight;
    double spread = s->xx / s->weight - x * x, both = s->xy / s->weight - x * y;
    /* The line through the measurements; where all were of one size, one with the usual start. */
    double start = y < CPU_START_NS ? y : CPU_START_NS, slope = x > 0 ? (y - start) / x : 0;
    if (spread > x * x * 1e-3 && both > 0 && y - both / spread * x > 0) {
        slope = both / spread;
        start = y - slope * x;
    }
    return start + slope * (double)bytes;
}

double sl_lane_split_link_ns(const struct sl_lane_split *s, uint64_t bytes) {
    return bytes ? LINK_START_NS + s->link_byte_ns * (double)bytes : 0;
}

static void set_link(struct sl_lane_split *s, double byte_ns) {
    /* Between 10 MB/s and 10 TB/s, whatever goes wrong. */
    s->link_byte_ns = !(byte_ns < 100) ? 100 : byte_ns < 1e-4 ? 1e-4 : byte_ns;
}

static double byte_ns(uint64_t bytes, uint64_t ns) {
    return ((double)ns > LINK_START_NS ? (double)ns - LINK_START_NS : 0) / (double)bytes;
}

void sl_lane_split_linked(struct sl_lane_split *s, uint64_t bytes, uint64_t ns) {
    s->untimed = s->last = 0;
    if (bytes)
        set_link(s, s->link_byte_ns + TIME_WEIGHT * (byte_ns(bytes, ns) - s->link_byte_ns));
}

void sl_lane_split_had_linked(struct sl_lane_split *s, uint64_t bytes, uint64_t ns) {
    s->last++;
    if (bytes && sl_lane_split_link_ns(s, bytes) > (double)ns)
        set_link(s, byte_ns(bytes, ns));
}

bool sl_lane_split_wants_time(const struct sl_lane_split *s) {
    return s->untimed >= TIME_AGAIN;
}

bool sl_lane_split_clears_link(const struct sl_lane_split *s) {
    return sl_lane_split_wants_time(s) && s->untimed % CLEAR_EVERY == 0;
}

bool sl_lane_split_tries_soon(const struct sl_lane_split *s) {
    return s->unused == TRY_AGAIN - WAKE_BEFORE;
}

/* ---- what follows from it ---- */

static uint32_t forced(struct sl_lane_split *s, uint32_t n) {
    uint32_t share = s->carry + n * s->percent;
    s->carry = share % 100;
    return share / 100;
}

/* How many of n experts the CPU takes where that is fastest, and what it saves. */
static uint32_t fastest(const struct sl_lane_split *s, uint32_t n, uint64_t expert_bytes,
                        uint64_t copied_bytes, double *out_saved_ns) {
    uint32_t best = 0;
    double alone = sl_lane_split_link_ns(s, copied_bytes + n * expert_bytes), least = GAIN * alone;
    for (uint32_t i = 1; i <= n; i++) {
        double cpu = sl_lane_split_cpu_ns(s, i * expert_bytes);
        double link = sl_lane_split_link_ns(s, copied_bytes + (n - i) * expert_bytes);
        double both = LANE_COST_NS + (cpu > link ? cpu : link);
        if (both < least) {
            least = both;
            best = i;
        }
    }
    *out_saved_ns = best ? alone - least : 0;
    return best;
}

uint32_t sl_lane_split_ahead(const struct sl_lane_split *s, uint32_t n, uint64_t expert_bytes) {
    double saved;
    return s->forced ? n - n * s->percent / 100 : n - fastest(s, n, expert_bytes, 0, &saved);
}

uint32_t sl_lane_split_choose(struct sl_lane_split *s, uint32_t n, uint64_t expert_bytes,
                              uint64_t copied_bytes) {
    if (!n)
        return 0;
    if (s->forced)
        return forced(s, n);
    double saved;
    uint32_t best = fastest(s, n, expert_bytes, copied_bytes, &saved);
    s->saved_ns += saved;
    s->untimed++;
    s->unused = best ? 0 : s->unused + 1;
    if (s->unused >= TRY_AGAIN) {
        s->unused = 0;
        return 1;
    }
    if (best && s->last >= TRY_LESS) {
        s->last = 0;
        s->untimed = TIME_AGAIN;
        return best - 1;
    }
    return best;
}
