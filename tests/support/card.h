/* A graphics card for tests of the engine: the CPU backend behind a device whose memory the host
 * cannot follow.
 *
 * Device addresses lie in mappings without access, so following one on the host faults; memory is
 * counted and runs out. Queues are late: what is enqueued runs only when somebody waits for it, so
 * that memory which is reused too early, or a dependency that was forgotten, shows as wrong bytes.
 * Ops are the CPU's own, so that whole runs can be compared with plain ones byte for byte.
 *
 * A source may have several cards, for a thread each. One that follows another's signal runs that
 * one's queue as far as it must. */
#ifndef SL_TESTS_SUPPORT_CARD_H
#define SL_TESTS_SUPPORT_CARD_H

#include "backends/backend.h"
#include "engine/engine.h"

#include <pthread.h>

struct card;

/* The largest buffer of a card, unless it is told otherwise. */
#define CARD_MAX_ALLOC_BYTES ((uint64_t)64 << 20)

struct card_config {
    uint32_t n_threads;       /* of the CPU behind it; 0 = 1 */
    uint32_t n_cards;         /* that the source has, all alike; 0 = 1 */
    uint32_t plain;           /* bit i: the i-th of them is no card but the CPU itself */
    uint32_t n_chips;         /* pieces of hardware that they are, in turn; 0 = as many */
    uint64_t memory_bytes;    /* 0 = 1 TiB */
    uint64_t held_bytes;      /* said to have been taken by opening it */
    uint64_t max_alloc_bytes; /* of one buffer; 0 = CARD_MAX_ALLOC_BYTES */
    bool same_addresses;      /* the card knows its memory and the host's by the host's addresses */
    bool eager_copies;        /* what UP and DOWN are given runs at once, while ops are late */
    bool integrated, no_graphs, no_placed, no_fused;
    bool lane;          /* its experts have the host's bits, so that the CPU may compute some */
    uint64_t lacks_ops; /* a bit for each enum sl_op */
    bool mailbox;       /* replays run at once, and the host sees what they copied: caps.mailbox */
    /* Faults: the number, from 1, of the call that fails; 0 = none. */
    uint64_t fail_alloc; /* of alloc: out of memory */
    uint64_t fail_copy;  /* of copy: the card is lost from then on */
    uint64_t refuse;     /* of copy or moe: no memory for it; goes on */
    /* Uploads and downloads of so many bytes are refused likewise, read at each; 0 = none. */
    _Atomic uint64_t refuse_up_bytes, refuse_down_bytes;
    uint64_t fail_wait;   /* of download, sync and await: likewise */
    uint64_t fail_peer;   /* of copies from other cards: likewise */
    uint64_t refuse_peer; /* of the same: no memory for it; goes on */
    uint64_t fail_send;   /* of rows handed to or taken from other cards, as it runs: lost */
    uint32_t fail_card;   /* the one whose calls are counted, from 1; 0 = each counts its own */
    uint32_t late_card;   /* whose thread calls come_late before it awaits; from 1, 0 = none */
    void (*come_late)(void);
    bool no_peers; /* cards cannot read one another's memory */
    bool no_sends; /* they can, but their ops write none of it */
};

/* Read by tests. */
struct card_stats {
    uint64_t n_allocs, n_maps, n_copies, n_waits, n_ops, n_replays, n_graphs;
    uint64_t up_bytes, down_bytes; /* by copies on those queues */
    uint64_t used_bytes, most_bytes;
    uint64_t most_of[SL_MAX_STAGES];    /* bytes, of each card */
    uint64_t n_peer_copies, n_receives; /* takes: sl_op_receive that have run */
    int64_t n_signals;                  /* not freed */
    uint64_t n_holds;                   /* of its own queue, until the host lets it go on */
    uint64_t n_relays;                  /* opened */
    uint64_t n_maxima;                  /* rows of sl_op_block_max that have run */
    uint64_t back_bytes;                /* by copies on the queue of the ops to the host */
    uint64_t n_fused;                   /* fused forms that have run */
};

/* A source for sl_engine_config.device_source. The devices it opens are the engine's. */
struct card_source {
    struct sl_device_source source; /* first */
    struct card_config config;
    struct card_stats stats; /* of all devices opened so far */
    uint32_t n_open;
    uint32_t n_relaying;  /* relays that have not been ended */
    pthread_mutex_t lock; /* of all cards, recursive; stats are the cards' while threads run */
    struct card *cards;   /* open */
};
void card_source_init(struct card_source *s, const struct card_config *config);

#endif
