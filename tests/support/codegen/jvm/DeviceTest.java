import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** Runs tests of a generated class as JUnit does: `DeviceTest CLASS TEST...`. */
public final class DeviceTest {
    private DeviceTest() {}

    public static void main(String[] arguments) throws Throwable {
        Class<?> type = Class.forName(arguments[0]);
        for (int i = 1; i < arguments.length; i++) {
            Object test = type.getConstructor().newInstance();
            type.getMethod("load").invoke(test);
            try {
                Method method = type.getMethod(arguments[i]);
                method.invoke(test);
                System.out.println(arguments[i] + " passed");
            } catch (InvocationTargetException failed) {
                System.out.println(arguments[i] + ": " + failed.getCause().getMessage());
            } finally {
                type.getMethod("close").invoke(test);
            }
        }
    }
}
