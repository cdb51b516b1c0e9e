/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Fields behind pointers that the verifier knows nothing of. For the objects of probes, which are loaded with a description of types that the
 * loader makes (src/btf/named.rs). */
#pragma once

#include "kernel.h"

/* The number of a struct of the kernel itself, by its name, from the description's `enum plumbline_type_ids`. libbpf would find another
 * number, that of the struct within the description. Each use has a value of its own, since LLVM treats uses of one value as the same
 * relocation (BPFAbstractMemberAccess). */
#define TYPE_ID(tag)                                                         \
	({                                                                   \
		enum plumbline_type_ids { TYPE_ID_##tag = __COUNTER__ + 1 }; \
		bpf_core_enum_value(enum plumbline_type_ids, TYPE_ID_##tag); \
	})
#undef bpf_core_type_id_kernel
#pragma clang poison bpf_core_type_id_kernel

/* A field of a struct of the kernel itself, not of a module: a load where that is possible, else copied by a helper. */
#define KERNEL_FIELD(tag, pointer, field)                                                                   \
	(bpf_ksym_exists(bpf_rdonly_cast) ? ((struct tag *)bpf_rdonly_cast(pointer, TYPE_ID(tag)))->field : \
					    BPF_CORE_READ((struct tag *)(pointer), field))

/* What a program of type kprobe is given (bpf_user_pt_regs_t), a struct of words only. */
#if defined(__TARGET_ARCH_arm64)
#define REGISTERS struct user_pt_regs
#define REGISTERS_ID TYPE_ID(user_pt_regs)
#else
#define REGISTERS struct pt_regs
#define REGISTERS_ID TYPE_ID(pt_regs)
#endif

/* 32 or 64 bits of memory for which the verifier has no type, in the same two ways. */
#define KERNEL_BITS(bits, pointer)                                                                                    \
	(bpf_ksym_exists(bpf_rdonly_cast) ? *(__u##bits *)bpf_rdonly_cast((const void *)(pointer), REGISTERS_ID) : ({ \
		__u##bits copy = 0;                                                                                   \
		bpf_probe_read_kernel(&copy, sizeof(copy), pointer);                                                  \
		copy;                                                                                                 \
	}))

/* 32 or 64 bits at a field of a type that may be a module's. */
#define FIELD_BITS(bits, type, pointer, field) \
	KERNEL_BITS(bits, (const char *)(pointer) + bpf_core_field_offset(type, field))
