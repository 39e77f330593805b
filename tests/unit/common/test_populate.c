#include "common/populate.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; older headers lack it */
#endif

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static char *map(size_t size_bytes, int prot) {
    char *p = mmap(NULL, size_bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    madvise(p, size_bytes, MADV_NOHUGEPAGE);
    return p;
}

static size_t n_present(char *p, size_t size_bytes) {
    size_t n = size_bytes / page_bytes(), found = 0;
    unsigned char *page = malloc(n);
    assert_non_null(page);
    assert_int_equal(mincore(p, size_bytes, page), 0);
    for (size_t i = 0; i < n; i++)
        found += page[i] & 1;
    free(page);
    return found;
}

/* More than one thread's piece, the last one short. */
static void all_pages_are_there(void **state) {
    (void)state;
    size_t bytes = ((size_t)130 << 20) + 3 * page_bytes();
    char *p = map(bytes, PROT_READ | PROT_WRITE);
    assert_int_equal(n_present(p, bytes), 0);
    assert_int_equal(sl_populate(p, bytes), 0);
    assert_int_equal(n_present(p, bytes), bytes / page_bytes());
    munmap(p, bytes);
}

/* Those that the range has a part of, and no others; what is written in them stays. */
static void a_part_of_pages(void **state) {
    (void)state;
    size_t page = page_bytes(), bytes = 8 * page;
    char *p = map(bytes, PROT_READ | PROT_WRITE);
    p[2 * page] = 5;
    assert_int_equal(sl_populate(p + 2 * page - 1, 2 * page + 2), 0);
    assert_int_equal(n_present(p, bytes), 4);
    assert_int_equal(n_present(p + page, 4 * page), 4);
    assert_int_equal(p[2 * page], 5);
    assert_int_equal(sl_populate(p + 7 * page, 0), 0);
    munmap(p, bytes);
}

static void what_cannot_be_written_is_an_error(void **state) {
    (void)state;
    size_t bytes = 4 * page_bytes();
    char *p = map(bytes, PROT_READ | PROT_WRITE);
    /* A kernel without it has pages touched one by one, and a hole kills the process. */
    if (madvise(p, bytes, MADV_POPULATE_WRITE) && errno == EINVAL)
        skip();
    assert_int_equal(munmap(p + 2 * page_bytes(), page_bytes()), 0);
    assert_int_equal(sl_populate(p, bytes), ENOMEM);
    munmap(p, bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_pages_are_there),
                                       cmocka_unit_test(a_part_of_pages),
                                       cmocka_unit_test(what_cannot_be_written_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
