/* The messages of setup.def as structs, and their bytes.
 *
 * Nothing that is decoded is trusted: lengths and counts are checked against the table, texts are
 * made one line, numbers are the caller's to judge. SL_ERR_PROTOCOL names the message and the
 * field. No function allocates. */
#ifndef SL_CLUSTER_SETUP_H
#define SL_CLUSTER_SETUP_H

#include "common/status.h"
#include "engine/types/config.h"

#define STRUCT(name, text)         struct sl_setup_##name {
#define MESSAGE(name, frame, text) struct sl_setup_##name {
#define U32(field, text)           uint32_t field;
#define U64(field, text)           uint64_t field;
#define F64(field, text)           double field;
#define FLAG(field, text)          bool field;
#define TEXT(field, size, text)    char field[size];
#define LIST(of, field, max, text)                                                                 \
    uint32_t n_##field;                                                                            \
    struct sl_setup_##of field[max];
#define END                                                                                        \
    }                                                                                              \
    ;
#include "cluster/setup.def"
#undef STRUCT
#undef MESSAGE
#undef U32
#undef U64
#undef F64
#undef FLAG
#undef TEXT
#undef LIST
#undef END

/* The longest message. */
#define SL_SETUP_MAX_BYTES 16384u

/* sl_setup_put_hello(m, out) writes m and returns how long it is; sl_setup_get_hello(bytes, n, m,
 * err) reads it; likewise the others. */
#define STRUCT(name, text)
#define MESSAGE(name, frame, text)                                                                 \
    size_t sl_setup_put_##name(const struct sl_setup_##name *m, uint8_t out[SL_SETUP_MAX_BYTES]);  \
    enum sl_status sl_setup_get_##name(const uint8_t *bytes, size_t n,                             \
                                       struct sl_setup_##name *out, struct sl_err *err)            \
        SL_MUST_CHECK;
#define U32(field, text)
#define U64(field, text)
#define F64(field, text)
#define FLAG(field, text)
#define TEXT(field, size, text)
#define LIST(of, field, max, text)
#define END
#include "cluster/setup.def"
#undef STRUCT
#undef MESSAGE
#undef U32
#undef U64
#undef F64
#undef FLAG
#undef TEXT
#undef LIST
#undef END

#endif
