/* How a row's pages are divided into parts, and how parts are put together, in order. */
#define MOST_PARTS 16u
#define LEAST_PAGES 2u /* of a part */

uint pages_of_part(uint n_pages) {
    return max((n_pages + MOST_PARTS - 1u) / MOST_PARTS, LEAST_PAGES);
}
/* By what to multiply what there is and the part that comes; most becomes that of both. */
void join_factors(inout float most, float of_part, out float keep, out float keep_part) {
    float top = of_part > most ? of_part : most;
    keep = most == top ? 1.0 : exp_defined(most - top);
    keep_part = of_part == top ? 1.0 : exp_defined(of_part - top);
    most = top;
}
float joined(float all, float part, float keep, float keep_part) {
    precise float scaled = all * keep;
    return fma_once(part, keep_part, scaled);
}
/* What sums are multiplied by in the end. */
float last_factor(float most, float total, uint64_t sinks, uint h) {
    precise float by = 1.0;
    if (sinks != 0) {
        float sink = f32s(sinks).v[h], top = most > sink ? most : sink;
        by = exp_defined(most - top);
        total = fma_once(total, by, exp_defined(sink - top));
    }
    by *= divide(1.0, total);
    return by;
}
