/* The indexer's scores of a row's positions: a group for each page, a work-item for each position.
 * Scores have the definition's bits, so that the choice is the same too. Rows that attend to all of
 * their positions need no scores. */
#include "common.clh"
#include "kv.clh"

GROUP(64) kernel void index_score(const struct sl_lz_index a) {
    uint r = (uint)(group() / a.max_pages), page = (uint)(group() % a.max_pages);
    if (r >= a.n_rows)
        return;
    uint t = a.row0 + r, len = U32S(a.row_len)[t], pos = page * PAGE + item();
    if (len <= a.n_top || pos >= len)
        return;
    ulong at = U32S(a.page_table)[(ulong)U32S(a.row_seq)[t] * a.max_pages + page];
    ulong key = a.keys + at * a.page_bytes + item() * row_bytes(a.dim, a.q8);
    global const float *q = F32S(a.q) + (ulong)t * a.n_heads * a.dim;
    global const float *w = F32S(a.w) + (ulong)t * a.n_heads;
    float score = 0.0f;
    for (uint h = 0; h < a.n_heads; h++) {
        float part[16];
        for (uint i = 0; i < 16u; i++)
            part[i] = 0.0f;
        for (uint i = 0; i < a.dim; i++)
            part[i % 16u] = fma(q[h * a.dim + i], element(key, i, a.q8), part[i % 16u]);
        float dot = tree_sum(part);
        score = fma(w[h], dot > 0.0f ? dot : 0.0f, score);
    }
    F32S(a.scores)[(ulong)r * a.max_pages * PAGE + pos] = score;
}
