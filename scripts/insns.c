/* Counts the instructions a guest executes between two marker instructions, under qemu-user (-plugin libinsns.so,out=FILE).
 *
 *   open a span            count                           close it
 *   riscv64: slti x0,x0,0x7a0     every instruction after    slti x0,x0,0x7a1
 *   aarch64: hint #0x68           the one and before the     hint #0x69
 *                                 other, of that thread
 *
 * Both are no-operations on every core: writes to x0 that the manual leaves to custom use, and hints without a meaning.
 * Each closed span appends a line with its count to FILE and flushes it, so that the guest can read what it just did.
 * An instruction that faults counts, once, though it does nothing; a signal handler that runs inside a span counts in it.
 *
 * No distribution packages qemu's header, so the few declarations used are written out here, from the documentation of the
 * interface (docs/devel/tcg-plugins.rst). Version 1 is what qemu 7.2 speaks.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct insn;
struct block;
struct about {
    const char *target;
    struct { int least, current; } version;
    bool whole_system;
    int cpus, max_cpus;
};
enum registers { NONE };

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, void (*translated)(uint64_t, struct block *));
extern size_t qemu_plugin_tb_n_insns(const struct block *);
extern struct insn *qemu_plugin_tb_get_insn(const struct block *, size_t index);
extern const void *qemu_plugin_insn_data(const struct insn *);
extern size_t qemu_plugin_insn_size(const struct insn *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *, void (*executed)(unsigned, void *), enum registers, void *);

int qemu_plugin_version = 1;

enum { THREADS = 4096 };
static struct { uint64_t count; bool open; } span[THREADS];
static uint32_t opens, closes;
static FILE *out;

static void count(unsigned thread, void *unused)
{
    (void)unused;
    thread %= THREADS;
    span[thread].count += span[thread].open;
}

static void open_span(unsigned thread, void *unused)
{
    (void)unused;
    span[thread % THREADS].count = 0;
    span[thread % THREADS].open = true;
}

static void close_span(unsigned thread, void *unused)
{
    (void)unused;
    span[thread % THREADS].open = false;
    fprintf(out, "%" PRIu64 "\n", span[thread % THREADS].count);
    fflush(out);
}

static void translated(uint64_t plugin, struct block *block)
{
    (void)plugin;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct insn *insn = qemu_plugin_tb_get_insn(block, i);
        void (*executed)(unsigned, void *) = count;
        uint32_t word = 0;
        if (qemu_plugin_insn_size(insn) == sizeof word)
            memcpy(&word, qemu_plugin_insn_data(insn), sizeof word);
        if (word == opens)
            executed = open_span;
        else if (word == closes)
            executed = close_span;
        qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, NONE, NULL);
    }
}

__attribute__((visibility("default")))
int qemu_plugin_install(uint64_t plugin, const struct about *about, int argc, char **argv)
{
    const char *path = argc == 1 && !strncmp(argv[0], "out=", 4) ? argv[0] + 4 : NULL;
    if (!strcmp(about->target, "riscv64")) {
        opens = 0x7a002013;
        closes = 0x7a102013;
    } else if (!strcmp(about->target, "aarch64")) {
        opens = 0xd5032d1f;
        closes = 0xd5032d3f;
    } else {
        fprintf(stderr, "insns: no markers are known for %s\n", about->target);
        return -1;
    }
    out = path ? fopen(path, "w") : NULL;
    if (!out) {
        fprintf(stderr, "insns: wants out=FILE, a file that can be written\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    return 0;
}
