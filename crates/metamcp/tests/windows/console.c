/* console FILE PROGRAM [ARGUMENT]...: starts a program on its own console, waits for the file, presses Ctrl-C there, and ends
 * as the program ends. Not Ctrl-Break for a group: Wine delivers that as Ctrl-C, which a new group does not hear. */
#include <windows.h>
#include <stdio.h>
#include <wchar.h>

static BOOL WINAPI heard(DWORD event) {
    return event == CTRL_C_EVENT;
}

int wmain(int count, wchar_t **words) {
    static wchar_t line[32768];
    STARTUPINFOW start = { .cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES };
    PROCESS_INFORMATION program;
    DWORD code = 0;
    if (count < 3) return 64;
    start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    for (int at = 2; at < count; at++) {
        wcscat(line, at > 2 ? L" \"" : L"\"");
        wcscat(line, words[at]);
        wcscat(line, L"\"");
    }
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &program)) return 65;
    CloseHandle(start.hStdInput);
    while (GetFileAttributesW(words[1]) == INVALID_FILE_ATTRIBUTES) {
        if (WaitForSingleObject(program.hProcess, 20) == WAIT_OBJECT_0) return 66;
    }
    SetConsoleCtrlHandler(heard, TRUE);
    if (!GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0)) return 67;
    WaitForSingleObject(program.hProcess, INFINITE);
    GetExitCodeProcess(program.hProcess, &code);
    return (int)code;
}
