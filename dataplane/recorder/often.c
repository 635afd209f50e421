/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/often.h"

#ifdef RECORDER_BPF

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/mman.h>

#include "often_object.h" /* often_object[]: often.bpf.c compiled */

struct often {
	struct bpf_object *object;
	struct bpf_link *links[OFTEN_NB_POINTS];
	struct often_ring *rings; /* of each CPU, written by the kernel */
	uint64_t *tails, *heads;  /* what was read, and up to where may be read now */
	size_t size;
	unsigned nb_cpus;
};

static const char *const names[OFTEN_NB_POINTS] = {
#define NAME(point) [OFTEN_##point] = #point,
	OFTEN_POINTS(NAME)
#undef NAME
};

/* The library's own messages would be read as ours; what went wrong is reported by the error it returns. */
static int quiet(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return 0;
}

/* Programs whose tracepoints this kernel lacks would keep all others from being loaded. */
static void leave_out_unknown(struct bpf_object *object)
{
	struct bpf_program *program;

	bpf_object__for_each_program(
		program, object) if (strncmp(bpf_program__section_name(program), "tp_btf/", 7) == 0 &&
				     libbpf_find_vmlinux_btf_id(bpf_program__name(program), BPF_TRACE_RAW_TP) < 0)
		bpf_program__set_autoload(program, false);
}

static int load(struct often *often, const int *cpus)
{
	struct bpf_map *numbers, *rings;
	uint32_t last = 0;
	int rc;

	often->object = bpf_object__open_mem(often_object, sizeof(often_object), NULL);
	if (often->object == NULL)
		return -errno;
	numbers = bpf_object__find_map_by_name(often->object, "numbers");
	rings = bpf_object__find_map_by_name(often->object, "rings");
	if (numbers == NULL || rings == NULL)
		return -EINVAL;
	for (unsigned i = 0; i < often->nb_cpus; i++)
		if ((uint32_t)cpus[i] > last)
			last = (uint32_t)cpus[i];
	rc = bpf_map__set_max_entries(numbers, last + 1);
	if (rc == 0)
		rc = bpf_map__set_max_entries(rings, often->nb_cpus);
	if (rc != 0)
		return rc;
	leave_out_unknown(often->object);
	rc = bpf_object__load(often->object);
	if (rc != 0)
		return rc;
	often->rings = mmap(NULL, often->size, PROT_READ, MAP_SHARED, bpf_map__fd(rings), 0);
	if (often->rings == MAP_FAILED) {
		often->rings = NULL;
		return -errno;
	}
	for (uint32_t number = 1; number <= often->nb_cpus && rc == 0; number++) {
		uint32_t cpu = (uint32_t)cpus[number - 1];

		rc = bpf_map__update_elem(numbers, &cpu, sizeof(cpu), &number, sizeof(number), BPF_ANY);
	}
	return rc;
}

struct often *often_open(const int *cpus, unsigned nb_cpus, char *why, size_t size)
{
	struct often *often = calloc(1, sizeof(*often));
	int rc = -ENOMEM;

	libbpf_set_print(quiet);
	if (often != NULL) {
		often->nb_cpus = nb_cpus;
		often->size = nb_cpus * sizeof(struct often_ring);
		often->tails = calloc(nb_cpus, sizeof(*often->tails));
		often->heads = calloc(nb_cpus, sizeof(*often->heads));
		if (often->tails != NULL && often->heads != NULL)
			rc = load(often, cpus);
	}
	if (rc == 0)
		return often;
	snprintf(why, size, "BPF: %s", strerror(-rc));
	often_close(often);
	return NULL;
}

int often_attach(struct often *often, const char *tracepoint)
{
	const char *slash = strchr(tracepoint, '/'), *name = slash != NULL ? slash + 1 : tracepoint;
	struct bpf_program *program;

	for (unsigned point = 0; point < OFTEN_NB_POINTS; point++) {
		if (strcmp(names[point], name) != 0)
			continue;
		program = bpf_object__find_program_by_name(often->object, name);
		if (program == NULL || !bpf_program__autoload(program))
			return -ENOENT;
		often->links[point] = bpf_program__attach(program);
		return often->links[point] != NULL ? (int)point : -errno;
	}
	return -ENOENT;
}

void often_skip(struct often *often, unsigned index)
{
	often->tails[index] = __atomic_load_n(&often->rings[index].head, __ATOMIC_ACQUIRE);
}

uint64_t often_begin(struct often *often, unsigned index)
{
	/* An eighth may be written over while we read. */
	const uint64_t most = OFTEN_LENGTH - OFTEN_LENGTH / 8;
	uint64_t head = __atomic_load_n(&often->rings[index].head, __ATOMIC_ACQUIRE), lost = 0;

	if (head - often->tails[index] > most) {
		lost = head - often->tails[index] - most;
		often->tails[index] += lost;
	}
	often->heads[index] = head;
	return lost;
}

bool often_next(struct often *often, unsigned index, struct often_event *event)
{
	uint64_t tail = often->tails[index];
	const struct often_event *found = &often->rings[index].events[tail % OFTEN_LENGTH];

	if (tail == often->heads[index] || __atomic_load_n(&found->sequence, __ATOMIC_ACQUIRE) != tail + 1)
		return false; /* nothing, or being written now: it is there the next time */
	*event = *found;
	return true;
}

void often_take(struct often *often, unsigned index)
{
	often->tails[index]++;
}

void often_close(struct often *often)
{
	if (often == NULL)
		return;
	for (unsigned i = 0; i < OFTEN_NB_POINTS; i++)
		bpf_link__destroy(often->links[i]);
	if (often->rings != NULL)
		munmap(often->rings, often->size);
	bpf_object__close(often->object);
	free(often->tails);
	free(often->heads);
	free(often);
}

#else

struct often *often_open(const int *cpus, unsigned nb_cpus, char *why, size_t size)
{
	snprintf(why, size, "BPF: this build was made without clang or libbpf");
	return NULL;
}

int often_attach(struct often *often, const char *tracepoint)
{
	return -ENOENT;
}

void often_skip(struct often *often, unsigned index)
{
}

uint64_t often_begin(struct often *often, unsigned index)
{
	return 0;
}

bool often_next(struct often *often, unsigned index, struct often_event *event)
{
	return false;
}

void often_take(struct often *often, unsigned index)
{
}

void often_close(struct often *often)
{
}

#endif
