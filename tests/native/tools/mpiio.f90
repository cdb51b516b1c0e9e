! The Fortran program of tests/native/mpiio: each rank opens, writes, reads and syncs a file. Argument: the file's path.
program checkpoint
  use mpi_f08
  implicit none
  type(MPI_File) :: file
  type(MPI_Status) :: status
  integer :: numbers(1000), rank
  integer(kind=MPI_OFFSET_KIND) :: at
  character(len=1000) :: path

  call get_command_argument(1, path)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  numbers = rank
  call MPI_File_open(MPI_COMM_WORLD, trim(path), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file)
  at = rank * 4000_MPI_OFFSET_KIND
  call MPI_File_write_at(file, at, numbers, 1000, MPI_INTEGER, status)
  call MPI_File_write_at_all(file, at, numbers, 500, MPI_INTEGER, status)
  call MPI_File_sync(file)
  call MPI_File_read_at(file, at, numbers, 1000, MPI_INTEGER, MPI_STATUS_IGNORE)
  call MPI_File_close(file)
  call MPI_Finalize()
end program checkpoint
