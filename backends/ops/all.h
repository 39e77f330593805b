/* The arguments of every op, for files that have to do with all of them. Each header defines its
 * ops: shapes, order of operations, sources. What holds for all (pointers, ownership, decode and
 * prompt rows) is in backend.h. */
#ifndef SL_BACKENDS_OPS_ALL_H
#define SL_BACKENDS_OPS_ALL_H

#include "backends/ops/attention.h"
#include "backends/ops/compress.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/index.h"
#include "backends/ops/kv.h"
#include "backends/ops/matmul.h"
#include "backends/ops/moe.h"
#include "backends/ops/ngram.h"
#include "backends/ops/norm.h"
#include "backends/ops/pool.h"
#include "backends/ops/recurrent.h"
#include "backends/ops/rope.h"
#include "backends/ops/router.h"
#include "backends/ops/rows.h"
#include "backends/ops/streams.h"
#include "backends/ops/transfer.h"
#include "backends/ops/weight.h"

#endif
