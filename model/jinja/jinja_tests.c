/* Tests: {value is name(argument)}. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_value.h"

#include <string.h>

#define TEST(name, expr)                                                                           \
    SL_J_FUNC(name, v) {                                                                           \
        return sl_j_bool(expr);                                                                    \
    }

static bool remainder_is(struct sl_jrt *rt, struct sl_jv v, struct sl_jv by, int64_t want) {
    return sl_j_equal(rt, sl_j_binary(rt, '%', v, by), sl_j_int(want));
}

static bool same_object(struct sl_jv a, struct sl_jv b) {
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case SL_J_NONE:
        return true;
    case SL_J_BOOL:
        return a.b == b.b;
    case SL_J_INT: /* Python keeps one object for each small integer */
        return a.i == b.i && a.i >= -5 && a.i <= 256;
    case SL_J_FLOAT:
        return false;
    default:
        return a.l == b.l;
    }
}

static bool is_case(struct sl_jrt *rt, struct sl_jv v, const char *method) {
    struct sl_jv s = sl_j_of_str(sl_j_to_str(rt, v));
    const struct sl_jfunc *f = sl_j_find_func(sl_j_str_methods, method, strlen(method));
    return sl_j_call_func(rt, "method", f, s, NULL).b;
}

TEST(is_defined, v.type != SL_J_UNDEF)
TEST(is_undefined, v.type == SL_J_UNDEF)
TEST(is_none, v.type == SL_J_NONE)
TEST(is_boolean, v.type == SL_J_BOOL)
TEST(is_true, v.type == SL_J_BOOL && v.b)
TEST(is_false, v.type == SL_J_BOOL && !v.b)
TEST(is_integer, v.type == SL_J_INT)
TEST(is_float, v.type == SL_J_FLOAT)
TEST(is_number, sl_j_is_number(v))
TEST(is_string, v.type == SL_J_STR)
TEST(is_mapping, v.type == SL_J_DICT)
TEST(is_iterable, sl_j_iterable(v))
TEST(is_sequence, v.type == SL_J_UNDEF || v.type == SL_J_STR || v.type == SL_J_LIST ||
                      v.type == SL_J_TUPLE || v.type == SL_J_DICT || v.type == SL_J_RANGE)
TEST(is_callable, v.type == SL_J_METHOD || v.type == SL_J_FUNC || v.type == SL_J_MACRO ||
                      v.type == SL_J_LOOP || v.type == SL_J_UNDEF)
TEST(is_escaped, v.type == SL_J_STR && v.s->markup)
TEST(is_odd, remainder_is(rt, v, sl_j_int(2), 1))
TEST(is_even, remainder_is(rt, v, sl_j_int(2), 0))
TEST(is_divisibleby, remainder_is(rt, v, arg[0], 0))
TEST(is_lower, is_case(rt, v, "islower"))
TEST(is_upper, is_case(rt, v, "isupper"))
TEST(is_eq, sl_j_equal(rt, v, arg[0]))
TEST(is_ne, !sl_j_equal(rt, v, arg[0]))
TEST(is_lt, sl_j_order(rt, '<', v, arg[0]))
TEST(is_le, sl_j_order(rt, SL_OP_LE, v, arg[0]))
TEST(is_gt, sl_j_order(rt, '>', v, arg[0]))
TEST(is_ge, sl_j_order(rt, SL_OP_GE, v, arg[0]))
TEST(is_in, sl_j_contains(rt, arg[0], v))
TEST(is_sameas, same_object(v, arg[0]))
TEST(is_filter, v.type == SL_J_STR && sl_j_find_filter(v.s->p, v.s->len))
TEST(is_test, v.type == SL_J_STR && sl_j_find_test(v.s->p, v.s->len))

const struct sl_jfunc sl_j_tests[] = {
    {"defined", is_defined, "", 0, false},     {"undefined", is_undefined, "", 0, false},
    {"none", is_none, "", 0, false},           {"boolean", is_boolean, "", 0, false},
    {"true", is_true, "", 0, false},           {"false", is_false, "", 0, false},
    {"integer", is_integer, "", 0, false},     {"float", is_float, "", 0, false},
    {"number", is_number, "", 0, false},       {"string", is_string, "", 0, false},
    {"mapping", is_mapping, "", 0, false},     {"iterable", is_iterable, "", 0, false},
    {"sequence", is_sequence, "", 0, false},   {"callable", is_callable, "", 0, false},
    {"escaped", is_escaped, "", 0, false},     {"odd", is_odd, "", 0, false},
    {"even", is_even, "", 0, false},           {"divisibleby", is_divisibleby, "num", 1, false},
    {"lower", is_lower, "", 0, false},         {"upper", is_upper, "", 0, false},
    {"==", is_eq, "other", 1, false},          {"eq", is_eq, "other", 1, false},
    {"equalto", is_eq, "other", 1, false},     {"!=", is_ne, "other", 1, false},
    {"ne", is_ne, "other", 1, false},          {"<", is_lt, "other", 1, false},
    {"lt", is_lt, "other", 1, false},          {"lessthan", is_lt, "other", 1, false},
    {"<=", is_le, "other", 1, false},          {"le", is_le, "other", 1, false},
    {">", is_gt, "other", 1, false},           {"gt", is_gt, "other", 1, false},
    {"greaterthan", is_gt, "other", 1, false}, {">=", is_ge, "other", 1, false},
    {"ge", is_ge, "other", 1, false},          {"in", is_in, "seq", 1, false},
    {"sameas", is_sameas, "other", 1, false},  {"filter", is_filter, "", 0, false},
    {"test", is_test, "", 0, false},           {NULL, NULL, NULL, 0, false},
};
