/* What is shown of a session's slot. */
#ifndef SL_ENGINE_SLOT_INFO_H
#define SL_ENGINE_SLOT_INFO_H

#include <stdint.h>

/* What one of the sessions that run at once is doing. */
enum sl_slot_state {
    SL_SLOT_FREE,
    SL_SLOT_PREFILL,
    SL_SLOT_DECODE,
    SL_SLOT_PARKED, /* its client does not read */
};
struct sl_slot_info {
    enum sl_slot_state state;
    uint64_t task; /* requests are counted from 1; 0 while free, as all that follows */
    uint32_t n_prompt, n_prompt_done, n_predicted;
    uint32_t n_max;                           /* prompt and answer at most */
    uint64_t queue_ns, prefill_ns, decode_ns; /* so far */
};

#endif
