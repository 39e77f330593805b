/* The variables of a scope while a template is compiled: which there are, in which slots of their
 * unit, and what they start as. Used by jinja_scope.c alone, which says what scopes and units are.
 * All memory is the compiler's; what has no room ends the compilation (sl_jc_fail). */
#ifndef SL_MODEL_JINJA_SYMBOLS_H
#define SL_MODEL_JINJA_SYMBOLS_H

#include "model/jinja/jinja_ast.h"

struct sl_jsymbols;

struct sl_junit *sl_jc_unit(struct sl_jc *c, struct sl_junit *parent);
/* A scope within parent, which may be NULL; unit NULL: parent's. */
struct sl_jsymbols *sl_jc_symbols(struct sl_jc *c, struct sl_jsymbols *parent,
                                  struct sl_junit *unit);
struct sl_junit *sl_jc_unit_of(const struct sl_jsymbols *s);

/* The scope has a parameter of this name; its slot. */
uint32_t sl_jc_symbol_param(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name);
/* It assigns the name; it reads it. */
void sl_jc_symbol_store(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name);
void sl_jc_symbol_load(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name);
/* Which variable the name means in the scope: how many units outwards, and in which slot. */
void sl_jc_symbol_find(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name,
                       uint32_t *out_hops, uint32_t *out_slot);

/* For the branches of an if: each works on a copy, which are merged into what they were copied
 * from. A variable that some branches set and others do not starts as what it is outside. */
struct sl_jsymbols *sl_jc_symbols_copy(struct sl_jc *c, const struct sl_jsymbols *s);
void sl_jc_symbols_merge(struct sl_jc *c, struct sl_jsymbols *base, struct sl_jsymbols **branch,
                         uint32_t n);

/* What is to be done when the scope is entered. */
struct sl_jscope *sl_jc_scope_of(struct sl_jc *c, const struct sl_jsymbols *s);

#endif
