"""`accelhub launch`: what is launched (`plan`), launching it (`run`), and the first thing in each process (`worker`)."""
