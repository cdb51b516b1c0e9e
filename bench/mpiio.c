/*
 * Measures a call of MPI-IO: reads of BYTES bytes from a file, in batches. The fastest batch counts, because other load on the machine
 * only adds time. Prints nanoseconds per call.
 * usage: mpiio BYTES BATCHES FILE
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS 20000

int main(int count, char **word)
{
	int bytes = atoi(word[1]), batches = atoi(word[2]);
	char *buffer = calloc(1, bytes + 1);
	double best = 1e9;
	MPI_Status status;
	MPI_File file;

	MPI_Init(&count, &word);
	MPI_File_open(MPI_COMM_SELF, word[3], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
	MPI_File_write_at(file, 0, buffer, bytes, MPI_BYTE, &status);
	for (int batch = 0; batch < batches; batch++) {
		double start = MPI_Wtime(), took;

		for (int call = 0; call < CALLS; call++)
			MPI_File_read_at(file, 0, buffer, bytes, MPI_BYTE, &status);
		took = (MPI_Wtime() - start) / CALLS;
		if (took < best)
			best = took;
	}
	printf("%.1f\n", best * 1e9);
	MPI_File_close(&file);
	MPI_Finalize();
	return 0;
}
