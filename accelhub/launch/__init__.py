"""`accelhub launch`: what is launched (`plan`), launching it (`run`), what each process does first (`worker`)."""
