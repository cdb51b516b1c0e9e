/* Reading a bundle: see bundle.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "bundle.h"

enum {
	BLOCK = 512, /* of a tar */
	NAME = 100, /* the header's name and, at SIZE, its size in octal */
	SIZE = 124,
	SIZE_LENGTH = 12,
	WINDOW_LOG = 20, /* no bundle of Plumbline's needs more memory */
};

struct unpacked {
	int file;
	ZSTD_DCtx *zstd;
	ZSTD_inBuffer in;
	char buffer[1 << 14];
};

/* Unpacks exactly `length` bytes. Returns 0 or an errno. */
static int unpack(struct unpacked *from, void *to, size_t length)
{
	ZSTD_outBuffer out = { to, length, 0 };

	while (out.pos < out.size) {
		size_t before = out.pos;
		ssize_t got;

		/* What it has taken in already may be enough. */
		if (ZSTD_isError(ZSTD_decompressStream(from->zstd, &out, &from->in)))
			return EBADMSG;
		if (out.pos > before || from->in.pos < from->in.size)
			continue;
		got = read(from->file, from->buffer, sizeof(from->buffer));
		if (got == 0 || (got < 0 && errno != EINTR))
			return got ? errno : EBADMSG;
		from->in = (ZSTD_inBuffer){ from->buffer, got > 0 ? got : 0, 0 };
	}
	return 0;
}

char *bundle_incident(const char *path, size_t *length)
{
	struct unpacked from = { .zstd = ZSTD_createDCtx() };
	char header[BLOCK], digits[SIZE_LENGTH + 1] = "", *incident = NULL;
	int error = ENOMEM;

	from.file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (from.file < 0)
		error = errno;
	if (from.file < 0 || !from.zstd)
		goto out;
	ZSTD_DCtx_setParameter(from.zstd, ZSTD_d_windowLogMax, WINDOW_LOG);
	error = unpack(&from, header, sizeof(header));
	if (error)
		goto out;
	memcpy(digits, header + SIZE, SIZE_LENGTH);
	*length = strtoul(digits, NULL, 8);
	error = EBADMSG;
	if (strncmp(header, "incident.json", NAME) != 0 || !*length || *length > MAX_INCIDENT)
		goto out;
	incident = malloc(*length);
	error = incident ? unpack(&from, incident, *length) : ENOMEM;
out:
	if (from.file >= 0)
		close(from.file);
	ZSTD_freeDCtx(from.zstd);
	if (error) {
		free(incident);
		incident = NULL;
	}
	errno = error;
	return incident;
}
