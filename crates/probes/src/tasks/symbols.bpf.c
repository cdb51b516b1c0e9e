// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* The kernel's symbols, asked one by one: /proc/kallsyms is megabytes of text. */
#include "../bpf/kernel.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

char text[SYMBOL_LENGTH];

SEC("syscall")
int name_of(struct symbol *symbol)
{
	__u64 address = symbol->address;
	long length;

	if (symbol->with_offset)
		length = BPF_SNPRINTF(text, sizeof(text), "%pB", address);
	else
		length = BPF_SNPRINTF(text, sizeof(text), "%ps", address);
	__builtin_memcpy(symbol->name, text, sizeof(text));
	return length > 0;
}

SEC("syscall")
int address_of(struct symbol *symbol)
{
	__u64 address = 0;

	__builtin_memcpy(text, symbol->name, sizeof(text));
	text[sizeof(text) - 1] = 0;
	bpf_kallsyms_lookup_name(text, sizeof(text), 0, &address);
	symbol->address = address;
	return !!address;
}
