/* Which thread takes a brief step on: none is woken where none need be, and the order remains. */
#include "tests/unit/engine/fixture.h"

#include "engine/stage/pipeline.h"

#include <pthread.h>
#include <semaphore.h>

#define N_STAGES 3u
#define N_ITEMS  40u

/* The first computes and may be asked from anywhere; the second only takes over, as one of another
 * machine does, and answers from a thread of its own; the third is a stage like any other. */
struct fake {
    struct sl_stage base; /* first */
    uint32_t index;
    bool anywhere, posts;
    pthread_t by[N_ITEMS]; /* who sent each call */
    uint32_t order[N_ITEMS], n;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct sl_stage_call *queue[N_ITEMS];
    uint32_t n_queued, n_answered;
    bool holds, quit;
    sem_t *inside, *until; /* whoever sends a step is there, till then */
    atomic_uint n_inside, most_inside;
    atomic_bool has_background;
    atomic_uint n_idle;
};

struct item {
    struct sl_pipeline_item item; /* first */
    struct sl_stage_call calls[N_STAGES];
    uint32_t number;
};

struct rig {
    struct fake fakes[N_STAGES];
    struct item items[N_ITEMS];
    struct sl_stage_metrics shown[N_STAGES];
    struct sl_pipeline *p;
    atomic_uint n_arrived, n_meanwhile;
};

static void answer(struct sl_stage_call *c) {
    sl_stage_answer_begin(&c->answer);
    c->owner->answered(c->owner, c);
}

static void *answer_all(void *arg) {
    struct fake *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->quit || f->n_answered < f->n_queued) {
        if (f->holds || f->n_answered == f->n_queued) {
            pthread_cond_wait(&f->changed, &f->lock);
            continue;
        }
        struct sl_stage_call *c = f->queue[f->n_answered++];
        pthread_mutex_unlock(&f->lock);
        answer(c);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void send_to(struct sl_stage *s, struct sl_stage_call *c) {
    struct fake *f = (struct fake *)(void *)s;
    if (c->ask.what != SL_STAGE_STEP) {
        atomic_fetch_add(&f->n_idle, c->ask.what == SL_STAGE_IDLE);
        answer(c);
        return;
    }
    if (atomic_fetch_add(&f->n_inside, 1))
        atomic_store(&f->most_inside, 2);
    f->by[f->n] = pthread_self();
    f->order[f->n++] = ((struct item *)c->user)->number;
    if (f->until) {
        sem_post(f->inside);
        while (sem_wait(f->until) != 0)
            ;
    }
    if (c->owner->meanwhile)
        c->owner->meanwhile(c->owner, c);
    atomic_fetch_sub(&f->n_inside, 1);
    if (!f->posts) {
        sl_stage_answer_begin(&c->answer);
        c->answer.has_background = f->has_background;
        c->owner->answered(c->owner, c);
        return;
    }
    pthread_mutex_lock(&f->lock);
    f->queue[f->n_queued++] = c;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static bool on_any_thread(const struct sl_stage *s) {
    return ((const struct fake *)(const void *)s)->anywhere;
}

static bool ask(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    (void)p;
    (void)stage;
    c->ask.what = SL_STAGE_STEP;
    return true;
}

static void arrived(void *ctx) {
    atomic_fetch_add(&((struct rig *)ctx)->n_arrived, 1);
}

static void meanwhile(void *ctx) {
    atomic_fetch_add(&((struct rig *)ctx)->n_meanwhile, 1);
}

static bool stopping(void *ctx) {
    (void)ctx;
    return false;
}

static const struct sl_stage_ops ops = {.send = send_to, .on_any_thread = on_any_thread};
static const struct sl_stage_ops posting_ops = {.send = send_to, .posts = true};

static void rig_init(struct rig *r, bool anywhere) {
    struct sl_stage *stages[N_STAGES];
    const struct sl_pipeline_hooks hooks = {arrived, meanwhile, stopping, r};
    struct sl_err err;
    memset(r, 0, sizeof *r);
    for (uint32_t i = 0; i < N_STAGES; i++) {
        struct fake *f = &r->fakes[i];
        f->index = i;
        f->anywhere = anywhere && i == 0;
        f->posts = i == 1;
        f->base.ops = f->posts ? &posting_ops : &ops;
        pthread_mutex_init(&f->lock, NULL);
        pthread_cond_init(&f->changed, NULL);
        stages[i] = &f->base;
        if (f->posts)
            assert_int_equal(pthread_create(&f->thread, NULL, answer_all, f), 0);
    }
    for (uint32_t i = 0; i < N_ITEMS; i++) {
        r->items[i].number = i;
        r->items[i].item = (struct sl_pipeline_item){.ask = ask, .calls = r->items[i].calls};
    }
    assert_int_equal(sl_pipeline_open(stages, N_STAGES, false, &hooks, NULL, r->shown, &r->p, &err),
                     SL_OK);
}

static void hold(struct rig *r, bool holds) {
    struct fake *f = &r->fakes[1];
    pthread_mutex_lock(&f->lock);
    f->holds = holds;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void rig_release(struct rig *r) {
    struct fake *f = &r->fakes[1];
    sl_pipeline_close(&r->p);
    pthread_mutex_lock(&f->lock);
    f->quit = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
}

static void send_item(struct rig *r, uint32_t i, bool brief) {
    r->items[i].item.is_brief = brief;
    sl_pipeline_send(r->p, &r->items[i].item);
}

/* One at a time: its sender computes the first part and sends it to the second. */
static void test_who_takes_it_on(void **state) {
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        bool brief = k & 1, anywhere = k & 2;
        static struct rig r;
        rig_init(&r, anywhere);
        for (uint32_t i = 0; i < 5; i++) {
            send_item(&r, i, brief);
            sl_pipeline_wait(r.p, &r.items[i].item);
        }
        rig_release(&r);
        for (uint32_t i = 0; i < 5; i++) {
            bool here = brief && anywhere;
            assert_int_equal(!!pthread_equal(r.fakes[0].by[i], pthread_self()), here);
            assert_int_equal(!!pthread_equal(r.fakes[1].by[i], r.fakes[0].by[i]), brief);
            assert_false(pthread_equal(r.fakes[2].by[i], pthread_self()));
            assert_false(pthread_equal(r.fakes[2].by[i], r.fakes[1].thread));
        }
        /* Who computes for a thread that has more to do looks after that. */
        assert_int_equal(r.n_meanwhile, brief && anywhere ? 5 : 0);
        assert_int_equal(r.n_arrived, 5);
    }
}

/* Only what has the pipeline to itself is its sender's. */
static void test_two_at_once(void **state) {
    static struct rig r;
    (void)state;
    rig_init(&r, true);
    hold(&r, true);
    send_item(&r, 0, true);
    send_item(&r, 1, true);
    hold(&r, false);
    sl_pipeline_wait(r.p, &r.items[1].item);
    assert_true(sl_pipeline_done(r.p, &r.items[0].item));
    rig_release(&r);
    assert_true(pthread_equal(r.fakes[0].by[0], pthread_self()));
    assert_false(pthread_equal(r.fakes[0].by[1], pthread_self()));
}

/* Brief ones and others, many at once: every stage gets them in the order in which they were sent.
 */
static void test_the_order_remains(void **state) {
    static struct rig r;
    (void)state;
    for (uint32_t round = 0; round < 50; round++) {
        rig_init(&r, true);
        for (uint32_t i = 0; i < N_ITEMS; i++) {
            send_item(&r, i, (i * 7 + round) % 3);
            if ((i + round) % 5 == 0)
                sl_pipeline_wait(r.p, &r.items[i].item);
        }
        for (uint32_t i = 0; i < N_ITEMS; i++)
            sl_pipeline_wait(r.p, &r.items[i].item);
        rig_release(&r);
        for (uint32_t k = 0; k < N_STAGES; k++) {
            assert_int_equal(r.fakes[k].n, N_ITEMS);
            for (uint32_t i = 0; i < N_ITEMS; i++)
                assert_int_equal(r.fakes[k].order[i], i);
        }
        assert_int_equal(r.n_arrived, N_ITEMS);
    }
}

/* Where there is no machine to wait for, nobody attends; who is nudged returns at once. */
static void test_nobody_attends_a_stage_of_this_process(void **state) {
    static struct rig r;
    (void)state;
    rig_init(&r, true);
    hold(&r, true);
    send_item(&r, 0, true);
    assert_false(sl_pipeline_attend(r.p, &r.items[0].item, UINT64_MAX));
    sl_pipeline_nudge(r.p);
    assert_true(sl_pipeline_attend(r.p, &r.items[0].item, UINT64_MAX));
    assert_false(sl_pipeline_attend(r.p, &r.items[0].item, UINT64_MAX));
    hold(&r, false);
    sl_pipeline_wait(r.p, &r.items[0].item);
    rig_release(&r);
}

/* Two answers of the first stage, each on a thread of its own, as when one comes and the other is
 * given up. */
static void *answer_one(void *call) {
    answer(call);
    return NULL;
}

/* Whoever has a step at a stage has it alone: another step waits, and goes there as soon as he has
 * done with it. */
static void test_one_at_a_time(void **state) {
    (void)state;
    for (uint32_t brief = 0; brief < 2; brief++) {
        static struct rig r;
        pthread_t threads[2];
        sem_t inside, until;
        sem_init(&inside, 0, 0);
        sem_init(&until, 0, 0);
        rig_init(&r, false);
        struct fake *f = &r.fakes[1];
        f->inside = &inside;
        f->until = &until;
        r.fakes[0].base.ops = &posting_ops; /* nobody answers but who does so here */
        r.fakes[0].posts = true;
        for (uint32_t i = 0; i < 2; i++)
            send_item(&r, i, brief || i);
        for (uint32_t n = 0; n < 2; usleep(100)) {
            pthread_mutex_lock(&r.fakes[0].lock);
            n = r.fakes[0].n_queued;
            pthread_mutex_unlock(&r.fakes[0].lock);
        }
        pthread_create(&threads[0], NULL, answer_one, &r.items[0].calls[0]);
        sem_wait(&inside);
        pthread_create(&threads[1], NULL, answer_one, &r.items[1].calls[0]);
        pthread_join(threads[1], NULL);
        usleep(20000); /* nobody else gets in */
        sem_post(&until);
        sem_post(&until);
        sl_pipeline_wait(r.p, &r.items[1].item);
        assert_true(sl_pipeline_done(r.p, &r.items[0].item));
        pthread_join(threads[0], NULL);
        rig_release(&r);
        assert_int_equal(f->n, 2);
        assert_int_equal(f->order[0], 0);
        assert_int_equal(f->most_inside, 0);
        sem_destroy(&inside);
        sem_destroy(&until);
    }
}

/* Once nothing is under way a stage with something to read does that. */
static void test_there_is_time_to_read(void **state) {
    static struct rig r;
    (void)state;
    rig_init(&r, false);
    uint64_t until_ns = sl_now_ns() + 60000000000u;
    r.fakes[0].has_background = true;
    hold(&r, true);
    send_item(&r, 0, true);
    send_item(&r, 1, true);
    hold(&r, false);
    sl_pipeline_wait(r.p, &r.items[1].item);
    while (!r.fakes[0].n_idle) {
        assert_true(sl_now_ns() < until_ns);
        usleep(100);
    }
    rig_release(&r);
    assert_int_equal(r.fakes[2].n_idle, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_takes_it_on),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_the_order_remains),
        cmocka_unit_test(test_nobody_attends_a_stage_of_this_process),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_there_is_time_to_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
