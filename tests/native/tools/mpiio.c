/* Calls every form of MPI-IO and prints the calls, which trace must have seen: JSON, one object for each operation with
 * its count, errors and bytes, over all ranks.
 * usage: mpiio SCENE FILE [COUNT] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH 1000 /* ints of one transfer */
#define BYTES (LENGTH * (long)sizeof(int))

static struct made {
	char name[32];
	long count, errors, bytes;
} made[64];
static int rank, ranks, buffer[4 * LENGTH];
static MPI_File file;
static MPI_Status status;

static void did(const char *name, int error, long bytes)
{
	struct made *m = made;

	while (m->name[0] && strcmp(m->name, name))
		m++;
	strcpy(m->name, name);
	m->count++;
	m->errors += error != MPI_SUCCESS;
	m->bytes += error == MPI_SUCCESS ? bytes : 0;
}

#define DO(bytes, name, ...) did(#name, MPI_File_##name(__VA_ARGS__), bytes)

static void tell(void)
{
	if (!rank)
		printf("[");
	for (struct made *m = made; m->name[0]; m++) {
		long mine[3] = { m->count, m->errors, m->bytes }, all[3];

		MPI_Reduce(mine, all, 3, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
		if (!rank)
			printf("%s{\"operation\":\"%s\",\"count\":%ld,\"errors\":%ld,\"bytes\":%ld}",
			       m == made ? "" : ",", m->name, all[0], all[1], all[2]);
	}
	if (!rank)
		printf("]\n");
}

static void open_it(const char *path, int mode)
{
	DO(0, open, MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file);
}

/* Each form once per rank, with a status. */
static void forms(const char *path)
{
	MPI_Offset at = rank * BYTES, size;
	MPI_Request request;

	open_it(path, MPI_MODE_CREATE | MPI_MODE_RDWR);
	DO(0, set_view, file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
	DO(0, set_view, file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
	DO(0, preallocate, file, ranks * BYTES);
	DO(0, set_size, file, ranks * BYTES);
	DO(BYTES, write_at, file, at, buffer, LENGTH, MPI_INT, &status);
	DO(BYTES, write_at_all, file, at, buffer, LENGTH, MPI_INT, &status);
	DO(0, sync, file);
	MPI_Barrier(MPI_COMM_WORLD);
	DO(BYTES, read_at, file, at, buffer, LENGTH, MPI_INT, &status);
	DO(BYTES, read_at_all, file, at, buffer, LENGTH, MPI_INT, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(BYTES, write, file, buffer, LENGTH, MPI_INT, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(BYTES, read, file, buffer, LENGTH, MPI_INT, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(BYTES, write_all, file, buffer, LENGTH, MPI_INT, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(BYTES, read_all, file, buffer, LENGTH, MPI_INT, &status);
	DO(BYTES, iwrite_at, file, at, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	DO(BYTES, iread_at, file, at, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(BYTES, iwrite, file, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(BYTES, iread, file, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	DO(BYTES, iwrite_at_all, file, at, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	DO(BYTES, iread_at_all, file, at, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(BYTES, iwrite_all, file, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(BYTES, iread_all, file, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	/* The bytes of a split collective belong to its end. */
	DO(0, write_at_all_begin, file, at, buffer, LENGTH, MPI_INT);
	DO(BYTES, write_at_all_end, file, buffer, &status);
	DO(0, read_at_all_begin, file, at, buffer, LENGTH, MPI_INT);
	DO(BYTES, read_at_all_end, file, buffer, MPI_STATUS_IGNORE);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(0, write_all_begin, file, buffer, LENGTH, MPI_INT);
	DO(BYTES, write_all_end, file, buffer, &status);
	MPI_File_seek(file, at, MPI_SEEK_SET);
	DO(0, read_all_begin, file, buffer, LENGTH, MPI_INT);
	DO(BYTES, read_all_end, file, buffer, MPI_STATUS_IGNORE);
	DO(0, get_size, file, &size);
	DO(0, close, &file);
	/* One rank deletes the file. The others' calls fail. */
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		DO(0, delete, path, MPI_INFO_NULL);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank)
		DO(0, delete, path, MPI_INFO_NULL);
}

/* With the shared file pointer. MPI orders the calls. */
static void shared(const char *path)
{
	MPI_Request request;

	open_it(path, MPI_MODE_CREATE | MPI_MODE_RDWR);
	DO(BYTES, write_shared, file, buffer, LENGTH, MPI_INT, &status);
	DO(BYTES, write_ordered, file, buffer, LENGTH, MPI_INT, &status);
	DO(BYTES, iwrite_shared, file, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	DO(0, write_ordered_begin, file, buffer, LENGTH, MPI_INT);
	DO(BYTES, write_ordered_end, file, buffer, &status);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
	DO(BYTES, read_shared, file, buffer, LENGTH, MPI_INT, &status);
	DO(BYTES, read_ordered, file, buffer, LENGTH, MPI_INT, &status);
	DO(BYTES, iread_shared, file, buffer, LENGTH, MPI_INT, &request);
	MPI_Wait(&request, &status);
	DO(0, read_ordered_begin, file, buffer, LENGTH, MPI_INT);
	DO(BYTES, read_ordered_end, file, buffer, &status);
	DO(0, close, &file);
}

/* Special cases: no status, short and empty transfers, errors, and datatypes with holes. */
static void odd(const char *path)
{
	MPI_Datatype holes, pair;
	MPI_File none;

	/* Every other int: its size is half of its extent. */
	MPI_Type_vector(LENGTH, 1, 2, MPI_INT, &holes);
	MPI_Type_commit(&holes);
	MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
	MPI_Type_commit(&pair);
	open_it(path, MPI_MODE_CREATE | MPI_MODE_RDWR);
	DO(BYTES, write_at, file, 0, buffer, 1, holes, &status);
	DO(BYTES, write_at, file, BYTES, buffer, LENGTH, MPI_INT, MPI_STATUS_IGNORE);
	DO(BYTES, read_at, file, 0, buffer, 1, holes, &status);
	DO(BYTES, read_at, file, 0, buffer, LENGTH, MPI_INT, MPI_STATUS_IGNORE);
	DO(8 * 16, read_at, file, 0, buffer, 8, pair, &status);
	/* The file ends within the transfer, the file ends before it, and the transfer is empty. */
	DO(100, read_at, file, 2 * BYTES - 100, buffer, LENGTH, MPI_INT, &status);
	DO(0, read_at, file, 2 * BYTES, buffer, LENGTH, MPI_INT, &status);
	DO(0, read_at, file, 0, buffer, 0, MPI_INT, &status);
	DO(0, write_at, file, 0, buffer, 0, MPI_INT, MPI_STATUS_IGNORE);
	/* Errors. By default, calls on files return them. */
	DO(BYTES, read_at, file, 0, buffer, -1, MPI_INT, &status);
	DO(0, close, &file);
	did("open", MPI_File_open(MPI_COMM_WORLD, "/nowhere/at/all", MPI_MODE_RDONLY, MPI_INFO_NULL, &none), 0);
	open_it(path, MPI_MODE_RDONLY);
	DO(BYTES, write_at, file, 0, buffer, LENGTH, MPI_INT, &status);
	DO(0, close, &file);
}

/* No status, and a derived datatype. */
static void ignored(const char *path)
{
	MPI_Datatype holes;

	MPI_Type_vector(LENGTH, 1, 2, MPI_INT, &holes);
	MPI_Type_commit(&holes);
	open_it(path, MPI_MODE_CREATE | MPI_MODE_RDWR);
	DO(BYTES, write_at, file, 0, buffer, 1, holes, MPI_STATUS_IGNORE);
	DO(0, close, &file);
}

/* Many calls of two forms. */
static void many(const char *path, int count)
{
	open_it(path, MPI_MODE_CREATE | MPI_MODE_RDWR);
	for (int i = 0; i < count; i++) {
		DO(400, write_at, file, rank * 400L, buffer, 100, MPI_INT, &status);
		DO(400, read_at, file, rank * 400L, buffer, 100, MPI_INT, MPI_STATUS_IGNORE);
	}
	DO(0, close, &file);
}

/* Opens the file, reports this, and writes after a line of input. The test changes its surroundings in between. */
static void told(const char *path, int count)
{
	char line[8];

	open_it(path, MPI_MODE_CREATE | MPI_MODE_RDWR);
	printf("open\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(1);
	memset(made, 0, sizeof(made));
	for (int i = 0; i < count; i++)
		DO(400, write_at, file, 0, buffer, 100, MPI_INT, &status);
	DO(0, close, &file);
}

/* One rank waits for another that never joins. */
static void stuck(const char *path)
{
	open_it(path, MPI_MODE_CREATE | MPI_MODE_RDWR);
	DO(400, write_at, file, rank * 400L, buffer, 100, MPI_INT, &status);
	if (rank)
		sleep(60);
	DO(0, close, &file);
}

/* Waits for at most a minute until the file exists that this variable names. */
static void await(const char *variable)
{
	const char *path = getenv(variable);

	for (int n = 0; path && access(path, F_OK) && n < 6000; n++)
		usleep(10000);
}

int main(int count, char **word)
{
	const char *scene = word[1], *path = word[2];
	int number = count > 3 ? atoi(word[3]) : 1;

	MPI_Init(&count, &word);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	/* Plumbline watches a newly mapped library after a moment, which is long on a busy machine. */
	await("GO");
	if (!strcmp(scene, "forms"))
		forms(path);
	else if (!strcmp(scene, "shared"))
		shared(path);
	else if (!strcmp(scene, "odd"))
		odd(path);
	else if (!strcmp(scene, "ignored"))
		ignored(path);
	else if (!strcmp(scene, "told"))
		told(path, number);
	else if (!strcmp(scene, "stuck"))
		stuck(path);
	else
		many(path, number);
	tell();
	fflush(stdout);
	/* Rank and mounts of a process are unknown after its exit. */
	await("LEAVE");
	MPI_Finalize();
	return 0;
}
