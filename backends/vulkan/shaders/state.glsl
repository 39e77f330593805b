/* A state kept by pages (struct sl_state_view): where a row finds and leaves it. */
#define PAGE 64u
#define STATE_ARGS uint64_t pages, page_bytes, page_table, slot, row_seq, row_len

/* Does row t go on from the row before it in the call? */
bool follows(uint t) {
    return t != 0u && u32s(a.row_seq).v[t] == u32s(a.row_seq).v[t - 1u] &&
           u32s(a.row_len).v[t] == u32s(a.row_len).v[t - 1u] + 1u;
}
/* The state before row t, which goes on from none in the call; 0: t is the first position. */
uint64_t state_before(uint t) {
    uint len = u32s(a.row_len).v[t];
    if (len < 2u)
        return 0;
    uint64_t at = uint64_t(u32s(a.row_seq).v[t]) * a.max_pages + (len - 2u) / PAGE;
    return a.pages + uint64_t(u32s(a.page_table + at * 4u).v[0]) * a.page_bytes;
}
uint64_t state_behind(uint t) {
    return a.pages + uint64_t(u32s(a.slot).v[t] / PAGE) * a.page_bytes;
}
/* Is the state behind row t kept: does the next row belong to another page, or sequence? */
bool is_kept(uint t) {
    return t + 1u == a.n_tok || !follows(t + 1u) ||
           u32s(a.slot).v[t] / PAGE != u32s(a.slot).v[t + 1u] / PAGE;
}
