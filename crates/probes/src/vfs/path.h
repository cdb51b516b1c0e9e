/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A file's path below the root of its file system, built from its end: if the path is too long, its start is cut off
 * ("..."). */
#pragma once

#include "../bpf/maps.h"
#include "vfs.h"

enum { MAX_PROGRAMS = 40, MAX_COMPONENTS = 8, PATH_END = FILE_LENGTH - 1, CUT = 3 };

struct path_text {
	const struct dentry *dentry; /* of the component to come */
	const struct qstr *name; /* that comes after it and has no dentry; NULL: there is none */
	__u32 at; /* where the text begins */
	/* Ends at PATH_END. The second half is for the verifier, which cannot see that it stays empty. */
	char text[2 * FILE_LENGTH];
};

/* Too large for the stack. One for each program: from a second task on this CPU, a run of the same one is refused. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PROGRAMS);
	__type(key, __u32);
	__type(value, struct path_text);
} path_texts SEC(".maps");

static __always_inline void put_before(struct path_text *p, const void *from, __u32 length)
{
	p->at -= length;
	bpf_probe_read_kernel(&p->text[p->at & PATH_END], length & PATH_END, from);
}

/* Puts one component before the others. Ends the walk at the root, or if there is no room. */
static long put_component(__u32 index, void *context)
{
	struct path_text *p = *(struct path_text **)context;
	const struct dentry *dentry = p->dentry, *parent = BPF_CORE_READ(dentry, d_parent);
	const struct qstr *component = p->name ?: &dentry->d_name;
	const unsigned char *name = BPF_CORE_READ(component, name);
	__u32 length = BPF_CORE_READ(component, len), room;

	if (!p->name && (!parent || parent == dentry))
		return 1;
	if (index == MAX_COMPONENTS || length + 1 + CUT > p->at) {
		/* Keeps at least the end of the file's own name. */
		room = p->at - CUT;
		if (index == 0)
			put_before(p, name + length - room, room);
		put_before(p, "...", CUT);
		return 1;
	}
	put_before(p, name, length);
	put_before(p, "/", 1);
	if (p->name)
		p->name = NULL;
	else
		p->dentry = parent;
	return 0;
}

static __always_inline void name_path(struct event *e, const struct dentry *dentry, const struct qstr *name,
				      __u32 program)
{
	struct path_text *p = bpf_map_lookup_elem(&path_texts, &program);

	if (!p || !dentry)
		return;
	p->dentry = dentry;
	p->name = name;
	p->at = PATH_END;
	bpf_loop(MAX_COMPONENTS + 1, put_component, &p, 0);
	if (p->at == PATH_END)
		put_before(p, "/", 1);
	bpf_probe_read_kernel(e->file, sizeof(e->file), &p->text[p->at & PATH_END]);
}
