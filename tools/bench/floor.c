/* tools/bench/floor.c - the floor: a program that does nothing. */
int main(void)
{
    return 0;
}
